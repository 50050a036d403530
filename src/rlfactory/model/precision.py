"""In what precision a network computes: one for sampling, one for learning."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

Name = Literal["float32", "bfloat16", "float16"]


class Precision:
    """`weights` is the dtype of what is frozen; what is trained is kept in float32, always.

    `rollout` is what the network computes in while it samples, for learning or to be judged,
    `learning` in all else, replays and comparisons included. Half precision is `torch.autocast`
    around the network alone; of schedules, likelihoods and losses nothing is ever in it.
    """

    def __init__(
        self, *, weights: Name = "float32", rollout: Name = "float32", learning: Name = "float32"
    ) -> None:
        self.weights: torch.dtype = getattr(torch, weights)
        self.rollout: torch.dtype = getattr(torch, rollout)
        self.learning: torch.dtype = getattr(torch, learning)
        self._now = self.learning

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """The network computes in `rollout` within.

        It is said, not guessed from whether there is a gradient: comparisons while learning have
        none either.
        """
        outer, self._now = self._now, self.rollout
        try:
            yield
        finally:
            self._now = outer

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """Enter this around the network."""
        if self._now == torch.float32:
            return nullcontext()
        return torch.autocast(device.type, dtype=self._now)
