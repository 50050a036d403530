"""CLIPScore: the cosine of an image's and its prompt's embedding by CLIP (Radford et al. 2021)."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.backbones.clip import ClipReward, Resample, load_clip
from rlfactory.reward.backbones.pretrained import Precision
from rlfactory.utils.types import PositiveInt

Scale = Literal["cosine", "logit/30", "logit/100"]


def scaled(cosine: Tensor, logit_scale: float, scale: Scale) -> Tensor:
    """The score `[B]` in a published scale: the cosine, or `cosine * logit_scale` / 30 or / 100.

    `logit_scale` is 100 in OpenAI's models.
    """
    if scale == "cosine":
        return cosine
    return cosine * (logit_scale / (30 if scale == "logit/30" else 100))


class ClipScore(ClipReward):
    """`clipscore`: the cosine of image and prompt, in one of the published scales."""

    model_options = ("path",)
    main = "clipscore"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "openai/clip-vit-large-patch14",
        scale: Scale = "cosine",
        resample: Resample = "bicubic",
        dtype: Precision = "auto",
        batch_size: PositiveInt = 32,
    ) -> None:
        """
        Args:
            path: A CLIP of transformers: a folder or a hub id.
            scale: cosine | logit/30 (Flow-GRPO) | logit/100 (DiffusionNFT).
            resample: bicubic, as CLIP was trained | bilinear, as Flow-GRPO resizes.
            dtype: auto | float32 | float16 | bfloat16; auto: bfloat16 on a GPU.
            batch_size: Images in one forward pass.
        """
        self.scale: Scale = scale
        self.clip = load_clip(path, device, dtype=dtype, batch_size=batch_size, resample=resample)

    def scaled(self, cosine: Tensor) -> Tensor:
        return scaled(cosine, self.clip.logit_scale, self.scale)
