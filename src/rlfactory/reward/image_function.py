"""A Python function as a reward of images or videos, as ddpo-pytorch and flow_grpo call it."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, require_images, require_videos
from rlfactory.reward.ops.python_function import (
    call_with_timeout,
    load_function,
    made_function,
)
from rlfactory.utils.images import batch_to_pil
from rlfactory.utils.types import Media, Positive

Form = Literal["tensor", "unit", "numpy", "pil"]
CPU = torch.device("cpu")


class ImageFunction(Reward):
    """The scores of `function(images, prompts, metadata)`, under the function's name.

    It returns what a function of texts may (`function.Function`). A class is called once and its
    object scores; so is a factory, whose function gets pixels in [0, 1], as its kin in ddpo-pytorch
    and flow_grpo. RewardError where there is no such function, or it returns anything else.
    """

    media: ClassVar[Media] = "images"

    def __init__(
        self,
        device: torch.device = CPU,
        *,
        function: str,
        images: Form | None = None,
        timeout: Positive = 60,
    ) -> None:
        """
        Args:
            function: package.module:name or path/to/file.py:name.
            images: tensor | unit | numpy | pil: uint8 [B, 3, H, W], the same as float in [0, 1],
                uint8 [B, H, W, 3], or RGB images. Null: tensor; of a class or a factory unit.
            timeout: > 0: seconds per call, after which its scores count as failed.
        """
        found, self.main = load_function(function)
        given = ("images", "prompts", "metadata")
        self.call, is_made = made_function(found, self.main, given, device)
        self.images: Form = images or ("unit" if is_made else "tensor")
        self.timeout = timeout

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; all NaN where the function raises, or takes longer than `timeout`."""
        images = self._converted(samples)
        prompts, metadata = list(samples.prompts), [dict(row) for row in samples.metadata]
        return call_with_timeout(
            lambda: self.call(images, prompts, metadata), self.timeout, self.main, len(prompts)
        )

    def _converted(self, samples: Samples) -> Any:
        """The first argument of the function."""
        return convert_images(require_images(samples), self.images)


class VideoFunction(ImageFunction):
    """The scores of `function(videos, prompts, metadata)`, under the function's name.

    As `ImageFunction`, of whole videos.

    Args:
        images: tensor | unit | numpy | pil: uint8 [B, F, 3, H, W], the same as float in [0, 1],
            uint8 [B, F, H, W, 3], or lists of frames.
    """

    media = "videos"

    def _converted(self, samples: Samples) -> Any:
        videos = require_videos(samples)
        if self.images == "pil":
            return [convert_images(video, "pil") for video in videos]
        flat = convert_images(videos.flatten(0, 1), self.images)
        return flat.reshape(*videos.shape[:2], *flat.shape[1:])


def convert_images(images: Tensor, form: Form) -> Any:
    """A copy of images `[B, 3, H, W]` uint8 in the form that a function takes; it may change it."""
    if form == "tensor":
        return images.clone()
    if form == "unit":
        return images.float() / 255
    if form == "numpy":
        return images.permute(0, 2, 3, 1).contiguous().numpy().copy()
    return batch_to_pil(images)
