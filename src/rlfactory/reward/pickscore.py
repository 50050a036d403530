"""PickScore (Kirstain et al. 2023): human preference between images of a prompt.

A CLIP ViT-H-14 trained on Pick-a-Pic: of two images, people prefer the first with probability
`sigmoid(s_1 - s_2)`, where `s = exp(logit_scale) * cosine`.
"""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.backbones.clip import ClipReward, load_clip
from rlfactory.reward.backbones.pretrained import Precision
from rlfactory.utils.types import PositiveInt

Scale = Literal["logit/26", "logit/100", "logit", "cosine", "mixgrpo"]


def scaled(cosine: Tensor, logit_scale: float, scale: Scale) -> Tensor:
    """The score `[B]` in a published scale; `logit = cosine * logit_scale`."""
    logit = cosine * logit_scale
    scales: dict[Scale, Tensor] = {
        "cosine": cosine,
        "mixgrpo": (logit - 18) / 8,
        "logit/26": logit / 26,
        "logit/100": logit / 100,
        "logit": logit,
    }
    return scales[scale]


class PickScore(ClipReward):
    """`pickscore`: PickScore of image and prompt, in one of the published scales."""

    model_options = ("path",)
    main = "pickscore"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "yuvalkirstain/PickScore_v1",
        processor: str | None = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
        scale: Scale = "logit/26",
        dtype: Precision = "auto",
        batch_size: PositiveInt = 16,
    ) -> None:
        """
        Args:
            path: The CLIP: a folder or a hub id.
            processor: Tokenizer and preprocessing; null: those of path.
            scale: logit/26 (Flow-GRPO) | logit/100 (in tables) | logit | cosine | mixgrpo.
            dtype: auto | float32 | float16 | bfloat16; auto: bfloat16 on a GPU.
            batch_size: Images in one forward pass.
        """
        self.scale: Scale = scale
        self.clip = load_clip(path, device, dtype=dtype, batch_size=batch_size, processor=processor)

    def scaled(self, cosine: Tensor) -> Tensor:
        return scaled(cosine, self.clip.logit_scale, self.scale)
