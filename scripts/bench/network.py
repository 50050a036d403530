"""Counts evaluations of a diffusion network, which two compared trainers must have in common."""

from typing import Any

import torch


class NetworkCalls:
    """Counts rows and passes of a network, without and with gradient, guidance included.

    Two trainers with the same settings evaluate the same number of rows, in any number of passes.
    """

    def __init__(self, network: torch.nn.Module) -> None:
        self.counts = dict.fromkeys(("rollout rows", "rollout passes"), 0)
        self.counts |= dict.fromkeys(("learn rows", "learn passes"), 0)
        network.register_forward_pre_hook(self._count)

    def _count(self, _: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        phase = "learn" if torch.is_grad_enabled() else "rollout"
        self.counts[f"{phase} rows"] += len(inputs[0])
        self.counts[f"{phase} passes"] += 1

    def an_iteration(self, iterations: int) -> dict[str, float]:
        """The counts per iteration."""
        return {name: count / iterations for name, count in self.counts.items()}
