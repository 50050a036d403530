"""Common parts of the recipes' training loops: batches by step, schedule, checkpoints."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from muon import Pair
from torch import Tensor, nn


def batches(
    count: int, size: int, steps: range, seed: int
) -> Iterator[tuple[int, Tensor, torch.Generator]]:
    """Indices and a generator for each step, both functions of the step alone, so that a stop
    loses nothing.
    """
    for step in steps:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        yield step, torch.randint(count, (size,), generator=generator), generator


def cosine(step: int, steps: int, warmup: int) -> float:
    return min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * step / steps))


@dataclass
class Leg:
    """A stage of training with one optimizer, whose learning rates are scaled by `rate(step)`."""

    path: Path
    parts: nn.ModuleDict
    optimizer: torch.optim.Optimizer | Pair
    steps: int
    rate: Callable[[int], float]
    seed: int


class Progress:
    """The state of one training stage on disk: parameters, their EMA, the optimizer, the
    step.
    """

    def __init__(
        self,
        path: Path,
        parts: nn.ModuleDict,
        optimizer: torch.optim.Optimizer | Pair,
        decay: float,
    ):
        self.path, self.parts, self.optimizer, self.decay = path, parts, optimizer, decay
        self.average = {k: v.detach().clone() for k, v in parts.named_parameters()}
        self.step, self.started, self.resumed = 0, time.time(), 0
        if path.exists():
            state = torch.load(path, weights_only=True)
            parts.load_state_dict(state["parts"])
            optimizer.load_state_dict(state["optimizer"])
            self.average, self.step = state["average"], state["step"]
            self.resumed = self.step

    @torch.no_grad()
    def advance(self, step: int, steps: int, loss: Tensor) -> None:
        parameters = [p for _, p in self.parts.named_parameters()]
        torch._foreach_lerp_(
            list(self.average.values()), parameters, 1 - min(self.decay, (1 + step) / (10 + step))
        )
        self.step = step + 1
        if self.step % 100 == 0:
            rate = (time.time() - self.started) / (self.step - self.resumed)
            print(
                f"{self.path.stem} {self.step}/{steps} loss {loss.item():.4f} {rate:.3f} s/step",
                flush=True,
            )
        if self.step % 500 == 0 or self.step == steps:
            self.save()

    def save(self) -> None:
        state = {"parts": self.parts.state_dict(), "optimizer": self.optimizer.state_dict()}
        partial = self.path.with_suffix(".partial")
        torch.save(state | {"average": self.average, "step": self.step}, partial)
        partial.replace(self.path)

    @torch.no_grad()
    def use_average(self) -> None:
        for name, parameter in self.parts.named_parameters():
            parameter.copy_(self.average[name])


def step_optimizer(optimizer: torch.optim.Optimizer | Pair, loss: Tensor, scale: float) -> None:
    """One step at `scale` times each group's own learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = scale * group.setdefault("peak", group["lr"])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 1.0)
    optimizer.step()
