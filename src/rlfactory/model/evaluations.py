"""How often a network was evaluated: the cost (NFE) in which published tables are stated."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch


def ignore() -> None:
    """Nobody watches."""


@dataclass
class Evaluations:
    """Rows that went through the network, without and with a gradient to follow.

    Guidance by a second, unconditional pass counts twice. `watch` is called before each pass, also
    of a model that does not count; it may raise, so that the pass is not made.
    """

    forward: int = 0
    trained: int = 0
    watch: Callable[[], None] = field(default=ignore, compare=False, repr=False)

    def add(self, rows: int) -> None:
        """Count a pass over that many rows."""
        self.watch()
        if torch.is_grad_enabled():
            self.trained += rows
        else:
            self.forward += rows

    def taken(self) -> "Evaluations":
        """What was counted since the last time, and begin anew."""
        counted = Evaluations(self.forward, self.trained)
        self.forward = self.trained = 0
        return counted


def evaluation_metrics(
    sampled: Evaluations, learned: Evaluations, samples: int
) -> dict[str, float]:
    """Evaluations for each sample: to draw it, to compare policies on it, to learn from it."""
    return {
        "nfe/sample": sampled.forward / samples,
        "nfe/compare": learned.forward / samples,
        "nfe/train": learned.trained / samples,
    }
