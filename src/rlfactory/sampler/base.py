"""The contract of a sampler: rollouts to learn from, samples to judge and to look at."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlfactory.nest import join
from rlfactory.prompts.base import Prompt
from rlfactory.rollout import Rollout

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Drawn:
    """Samples of either kind: `images` `[N, 3, H, W]` uint8 on the CPU, or N `texts`.

    `kl` `[N]` is how much likelier a text is than to the reference, in nats; its mean is the KL
    divergence of a response. `lengths` `[N]` counts tokens.
    """

    images: Tensor | None = None
    texts: list[str] | None = None
    kl: Tensor | None = None
    lengths: Tensor | None = None


class Sampler(ABC):
    """Draws at most `batch` samples at once; `advance` is told of each batch.

    Every random number is keyed by the seed, the iteration or the stream, and the sample's number.
    """

    def rollout(
        self, prompts: Sequence[Prompt], groups: Tensor, *, seed: int, iteration: int
    ) -> Rollout:
        """One sample for each of `groups` `[B]`, the numbers of their prompts."""
        return join([*self.batches(prompts, groups, seed=seed, iteration=iteration)])

    @abstractmethod
    def batches(
        self,
        prompts: Sequence[Prompt],
        groups: Tensor,
        *,
        seed: int,
        iteration: int,
        rows: Tensor | None = None,
    ) -> Iterator[Rollout]:
        """The batches of a rollout as they are drawn, in order; they may cut groups. `rows` are
        the numbers of the samples to draw, one after another; None is all.
        """

    @abstractmethod
    def draw(
        self, prompts: Sequence[str], *, seed: int, stream: str, rows: Tensor | None = None
    ) -> Drawn:
        """One sample of each prompt, the same whenever it is asked for; or of some of them."""


def numbers(count: int, rows: Tensor | None) -> Tensor:
    """The rows that are meant, of so many."""
    return torch.arange(count) if rows is None else rows
