"""Which picture would people prefer for a prompt? Human Preference Score v2 (Wu et al. 2023).

The cosine of picture and prompt by open_clip's ViT-H-14, fine-tuned on people's preferences. Its
preprocessing is its own: the longer side is resized, and the rest is black.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad
from transformers import CLIPImageProcessorPil
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from rlfactory.reward.base import Reward, Samples, pictures
from rlfactory.reward.clip import Clip, Precision, load_tokenizer, published_pixels
from rlfactory.reward.open_clip import VIT_H_14, load_open_clip
from rlfactory.types import PositiveInt

FILES = {
    "v2.1": "xswu/HPSv2/HPS_v2.1_compressed.pt",
    "v2.0": "xswu/HPSv2/HPS_v2_compressed.pt",
}


def padded_pixels(images: Tensor, side: int = 224) -> Tensor:
    """HPSv2's preprocessing of `[B, 3, H, W]` uint8: float32 `[B, 3, side, side]`, normalised.

    As in its own open_clip (`ResizeMaxSize`): the longer side becomes `side`, bicubic with
    antialias on numbers in [0, 1], neither clipped nor rounded, and black fills what is left.
    """
    height, width = images.shape[2:]
    scale = side / max(height, width)
    size = (round(height * scale), round(width * scale))
    shown = images.float() / 255
    if size != (height, width):
        shown = interpolate(shown, size, mode="bicubic", align_corners=False, antialias=True)
    left, top = (side - size[1]) // 2, (side - size[0]) // 2
    shown = pad(shown, (left, side - size[1] - left, top, side - size[0] - top))
    mean, std = torch.tensor(OPENAI_CLIP_MEAN), torch.tensor(OPENAI_CLIP_STD)
    return (shown - mean[:, None, None]) / std[:, None, None]


class HPS(Reward):
    """`hps`: the cosine of picture and prompt by the network of HPS v2.1, or of v2.0.

    `path` is the file of weights, that of the version by default.
    """

    media = "images"
    metadata = ()
    main = "hps"

    def __init__(
        self,
        device: torch.device,
        *,
        version: Literal["v2.1", "v2.0"] = "v2.1",
        path: str | None = None,
        processor: str = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
        fit: Literal["pad", "crop"] = "pad",
        dtype: Precision = "float32",
        batch_size: PositiveInt = 16,
    ) -> None:
        file = path or FILES[version]
        model = load_open_clip(file, VIT_H_14, key="reward.path", what="ViT-H-14 of open_clip")
        self.clip = Clip(
            model,
            device,
            pixels=padded_pixels if fit == "pad" else published_pixels(CLIPImageProcessorPil()),
            tokenizer=load_tokenizer(None, processor),
            dtype=dtype,
            batch_size=batch_size,
        )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, mostly between 0.15 and 0.4."""
        return {"hps": self.clip.cosines(pictures(samples), samples.prompts)}
