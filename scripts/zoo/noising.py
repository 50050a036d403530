"""Training batches of the image models: latents, noise, times and captions."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from training import batches

DROPPED = 0.1


@dataclass(frozen=True)
class Captioned:
    """Clean latents `[N, C, h, w]` and their captions' token ids, `[N, L]` for each tokenizer;
    `none` are those of the empty caption, `[1, L]`.
    """

    x0: Tensor
    words: tuple[Tensor, ...]
    none: tuple[Tensor, ...]


@dataclass(frozen=True)
class Batch:
    """Clean latents, noise, times `[B]` in (0, 1] and token ids; a tenth of the captions is
    dropped, for guidance.
    """

    x0: Tensor
    eps: Tensor
    time: Tensor
    words: tuple[Tensor, ...]

    @property
    def column(self) -> Tensor:
        """The times, `[B, 1, 1, 1]`."""
        return self.time.view(-1, 1, 1, 1)

    @property
    def on_the_line(self) -> Tensor:
        """Rectified flow's noisy sample."""
        return (1 - self.column) * self.x0 + self.column * self.eps


def noisy_batches(
    data: Captioned, steps: range, seed: int, shift: float, size: int = 64
) -> Iterator[tuple[int, Batch]]:
    """Batches with times stratified over the batch, then shifted towards noise."""
    for step, index, generator in batches(len(data.x0), size, steps, seed):
        dropped = torch.rand(size, 1, generator=generator) < DROPPED
        words = tuple(
            torch.where(dropped, none, ids[index])
            for ids, none in zip(data.words, data.none, strict=True)
        )
        u = torch.randperm(size, generator=generator) + torch.rand(size, generator=generator)
        time = shift * u / (size + (shift - 1) * u)
        x0 = data.x0[index]
        yield step, Batch(x0, torch.randn(x0.shape, generator=generator), time, words)
