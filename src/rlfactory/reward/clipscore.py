"""Does a picture fit its prompt? The cosine of their embeddings by CLIP."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, pictures
from rlfactory.reward.clip import Precision, Resample, load_clip
from rlfactory.types import PositiveInt

Scale = Literal["cosine", "logit/30", "logit/100"]


def scaled(cosine: Tensor, logit_scale: float, scale: Scale) -> Tensor:
    """The cosine `[B]`, or CLIP's logit (`logit_scale` times it, 100 in OpenAI's) by 30 or 100."""
    if scale == "cosine":
        return cosine
    return cosine * (logit_scale / (30 if scale == "logit/30" else 100))


class ClipScore(Reward):
    """`clipscore`: the cosine of picture and prompt, in one of the scales that are published."""

    media = "images"
    metadata = ()
    main = "clipscore"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "openai/clip-vit-large-patch14",
        scale: Scale = "cosine",
        resample: Resample = "bicubic",
        dtype: Precision = "float32",
        batch_size: PositiveInt = 32,
    ) -> None:
        self.scale: Scale = scale
        self.clip = load_clip(path, device, dtype=dtype, batch_size=batch_size, resample=resample)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; cosines are mostly between 0.1 and 0.4."""
        cosine = self.clip.cosines(pictures(samples), samples.prompts)
        return {"clipscore": scaled(cosine, self.clip.logit_scale, self.scale)}
