"""Any Python function as a reward of pictures, in the form of ddpo and flow_grpo."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rlfactory.pillow import all_to_pil
from rlfactory.reward.base import Reward, RewardError, Samples, pictures
from rlfactory.reward.calling import answer, load_function, numbers
from rlfactory.types import Positive

Form = Literal["tensor", "numpy", "pil"]


class ImageFunction(Reward):
    """The score of `function(images, prompts, metadata)`, which returns scores, or scores and info.

    `images` says what it is given: a `tensor` `[B, 3, H, W]` uint8, a `numpy` array `[B, H, W, 3]`
    uint8, or a list of RGB `pil` images. Scores are a list, an array or a tensor of B numbers; None
    and NaN are scores that could not be had, and what else it tells is passed over. The score's
    name is the function's. `timeout` is in seconds. RewardError where the function is not found or
    returns anything else.
    """

    media = "images"
    metadata = ()

    def __init__(
        self,
        *,
        function: str,
        images: Literal["tensor", "numpy", "pil"] = "tensor",
        timeout: Positive = 60.0,
    ) -> None:
        self.call, self.main = load_function(function)
        self.images: Form = images
        self.timeout = timeout

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; all NaN where the function raises, or takes longer than `timeout`."""
        given = as_form(pictures(samples), self.images)
        prompts, metadata = list(samples.prompts), [dict(row) for row in samples.metadata]
        done = answer(lambda: self.call(given, prompts, metadata), self.timeout, self.main)
        if done is None:
            return {self.main: torch.full((len(samples.prompts),), torch.nan)}
        return {self.main: _scores(done.result(), len(samples.prompts), self.main)}


def as_form(images: Tensor, form: Form) -> Any:
    """Pictures `[B, 3, H, W]` uint8 as a function wants them, copied: it may change them."""
    if form == "tensor":
        return images.clone()
    if form == "numpy":
        return images.permute(0, 2, 3, 1).contiguous().numpy().copy()
    return all_to_pil(images)


def _scores(returned: object, count: int, name: str) -> Tensor:
    """What the function returned, `[count]` float32; RewardError unless those are scores."""
    values = returned
    if isinstance(values, tuple) and len(values) == 2 and _is_info(*values):
        values = values[0]
    if isinstance(values, Tensor):
        values = values.detach().float().cpu().numpy()
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise RewardError(
                f"reward {name} must return one score for each of {count} images, not an array"
                f" {list(values.shape)}"
            )
        values = values.tolist()
    if not isinstance(values, list | tuple):
        raise RewardError(
            f"reward {name} must return a list, an array or a tensor of scores, or that and info,"
            f" not {type(values).__name__}"
        )
    return numbers(values, count, name, "images")


def _is_info(scores: object, info: object) -> bool:
    """Whether two things are scores and what ddpo's functions tell besides, not two scores."""
    return not isinstance(scores, Real | None) and isinstance(info, Mapping | str | None)
