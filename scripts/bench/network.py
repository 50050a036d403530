"""How much a diffusion network was asked: what two trainers must have in common."""

from typing import Any

import torch


class Asked:
    """Rows and passes of a network, without and with a gradient, guidance's second half among them.

    Two trainers that work alike ask the same rows; how many passes those take is their own affair.
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
        """The counts of one of them."""
        return {name: count / iterations for name, count in self.counts.items()}
