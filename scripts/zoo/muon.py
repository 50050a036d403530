"""Optimizers of the recipes: Muon on the matrices of the blocks, AdamW on the rest."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Muon(torch.optim.Optimizer):
    """Muon, orthogonalised momentum for matrices (K. Jordan 2024), with step sizes like AdamW's.

    The matrix of a convolution has a row for each output channel.

    torch.optim.Muon iterates in bfloat16, ten times slower on a CPU without bfloat16 units.
    """

    def __init__(self, params: list[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                shapes[tuple(p.shape)].append(p)
            for shape, members in shapes.items():
                for p in members:
                    buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    buffer.lerp_(p.grad, 1 - group["momentum"])
                    p.grad.lerp_(buffer, group["momentum"])
                steps = orthogonal(torch.stack([p.grad.flatten(1) for p in members]))
                for p, update in zip(members, steps, strict=True):
                    length = 0.2 * group["lr"] * max(update.shape) ** 0.5
                    p.add_(update.view(shape), alpha=-length)


def orthogonal(m: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrices to `[N, rows, columns]`, nearly: five Newton-Schulz
    steps.
    """
    x = m.mT if m.shape[1] > m.shape[2] else m
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        g = x @ x.mT
        x = 3.4445 * x + (-4.7750 * g + 2.0315 * g @ g) @ x
    return x.mT if m.shape[1] > m.shape[2] else x


class Pair:
    """Muon on the matrices and convolutions of `blocks`, AdamW on the rest of `parts`."""

    def __init__(self, blocks: nn.Module, parts: nn.Module, rest_lr: float = 1e-3) -> None:
        matrices = [p for p in blocks.parameters() if p.ndim >= 2]
        chosen = {id(p) for p in matrices}
        rest = [p for p in parts.parameters() if id(p) not in chosen]
        self.optimizers = [Muon(matrices, lr=4e-3), adamw(rest, rest_lr)]
        self.param_groups = [group for o in self.optimizers for group in o.param_groups]

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {str(i): o.state_dict() for i, o in enumerate(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for i, optimizer in enumerate(self.optimizers):
            optimizer.load_state_dict(state[str(i)])
        self.param_groups = [group for o in self.optimizers for group in o.param_groups]


def adamw(parameters: Iterable[nn.Parameter], lr: float = 1e-3) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01, betas=(0.9, 0.99))
