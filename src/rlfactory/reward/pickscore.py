"""Which picture would people pick for a prompt? PickScore (Kirstain et al. 2023).

A CLIP ViT-H-14 trained on Pick-a-Pic: of two pictures, people prefer the first with the
probability `sigmoid(s_1 - s_2)`, where `s = exp(logit_scale) * cosine`.
"""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, pictures
from rlfactory.reward.clip import Precision, load_clip
from rlfactory.types import PositiveInt

Scale = Literal["logit/26", "logit/100", "logit", "cosine", "mixgrpo"]


def scaled(cosine: Tensor, logit_scale: float, scale: Scale) -> Tensor:
    """The score `[B]` in one of the published scales; `mixgrpo` is `(logit - 18) / 8`."""
    logit = cosine * logit_scale
    match scale:
        case "cosine":
            return cosine
        case "mixgrpo":
            return (logit - 18) / 8
        case "logit/26":
            return logit / 26
        case "logit/100":
            return logit / 100
    return logit


class PickScore(Reward):
    """`pickscore`: how much people would prefer a picture for its prompt, on a published scale."""

    media = "images"
    metadata = ()
    main = "pickscore"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "yuvalkirstain/PickScore_v1",
        processor: str | None = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
        scale: Scale = "logit/26",
        dtype: Precision = "float32",
        batch_size: PositiveInt = 16,
    ) -> None:
        self.scale: Scale = scale
        self.clip = load_clip(path, device, dtype=dtype, batch_size=batch_size, processor=processor)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; logits are mostly between 17 and 25."""
        cosine = self.clip.cosines(pictures(samples), samples.prompts)
        return {"pickscore": scaled(cosine, self.clip.logit_scale, self.scale)}
