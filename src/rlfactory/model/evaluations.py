"""How often a network was evaluated: the cost (NFE) in which published tables are stated."""

from dataclasses import dataclass

import torch


@dataclass
class Evaluations:
    """Rows that went through the network, without and with a gradient to follow.

    Guidance by a second, unconditional pass counts twice.
    """

    forward: int = 0
    trained: int = 0

    def add(self, rows: int) -> None:
        """Count a pass over that many rows."""
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
