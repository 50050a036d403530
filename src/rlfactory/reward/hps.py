"""Human Preference Score v2, HPSv2 (Wu et al. 2023): the cosine of image and prompt by a CLIP.

The network is open_clip's ViT-H-14, fine-tuned on human preferences. The preprocessing is HPSv2's:
the longer side is resized, and the shorter one padded with black.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad
from transformers import CLIPImageProcessorPil
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from rlfactory.reward.backbones.clip import Clip, clip_preprocessing, load_clip_tokenizer
from rlfactory.reward.backbones.open_clip import VIT_H_14, load_open_clip
from rlfactory.reward.backbones.pretrained import Precision
from rlfactory.reward.base import Reward, Samples, require_images
from rlfactory.utils.types import PositiveInt

FILES = {
    "v2.1": "xswu/HPSv2/HPS_v2.1_compressed.pt",
    "v2.0": "xswu/HPSv2/HPS_v2_compressed.pt",
}


def resize_and_pad(images: Tensor, side: int = 224) -> Tensor:
    """HPSv2's preprocessing: images `[B, 3, H, W]` uint8 to `[B, 3, side, side]` float32.

    As in HPSv2's open_clip (`ResizeMaxSize`): the longer side becomes `side` (bicubic with
    antialias on numbers in [0, 1], neither clipped nor rounded), the rest is black; then
    CLIP's mean and deviation.
    """
    height, width = images.shape[2:]
    scale = side / max(height, width)
    size = (round(height * scale), round(width * scale))
    pixels = images.float() / 255
    if size != (height, width):
        pixels = interpolate(pixels, size, mode="bicubic", align_corners=False, antialias=True)
    left, top = (side - size[1]) // 2, (side - size[0]) // 2
    pixels = pad(pixels, (left, side - size[1] - left, top, side - size[0] - top))
    mean, std = torch.tensor(OPENAI_CLIP_MEAN), torch.tensor(OPENAI_CLIP_STD)
    return (pixels - mean[:, None, None]) / std[:, None, None]


class HPS(Reward):
    """`hps`: the cosine of image and prompt by the network of HPS v2.1, or v2.0.

    `path` is the file of weights, or `OWNER/NAME/FILE` of the hub; None: that of `version`.
    `processor` has the tokenizer. `fit="pad"` is the published preprocessing, "crop" CLIP's.
    RewardError where the network can't be loaded.
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
        dtype: Precision = "auto",
        batch_size: PositiveInt = 16,
    ) -> None:
        file = path or FILES[version]
        model = load_open_clip(file, VIT_H_14, key="reward.path", what="ViT-H-14 of open_clip")
        self.clip = Clip(
            model,
            device,
            pixels=resize_and_pad if fit == "pad" else clip_preprocessing(CLIPImageProcessorPil()),
            tokenizer=load_clip_tokenizer(None, processor),
            dtype=dtype,
            batch_size=batch_size,
        )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, mostly between 0.15 and 0.4. NaN where `dtype` overflows."""
        return {"hps": self.clip.cosines(require_images(samples), samples.prompts)}
