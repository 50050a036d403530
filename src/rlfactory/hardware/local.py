"""One process, plain torch."""

import resource
import sys
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from rlfactory.hardware.base import Hardware, HardwareError
from rlfactory.types import Positive, PositiveInt


class Local(Hardware):
    """A CPU or one GPU; `auto` takes the GPU where there is one."""

    rank = 0
    world_size = 1

    def __init__(
        self,
        *,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        threads: PositiveInt | None = None,
        memory_gb: Positive | None = None,
    ) -> None:
        del memory_gb  # the plan reads it
        found = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda" and found == "cpu":
            raise HardwareError("hardware.device=cuda, but torch finds no GPU; try hardware=cpu")
        self.device = torch.device(found if device == "auto" else device)
        if threads is not None:
            torch.set_num_threads(threads)

    def backward(self, loss: Tensor) -> None:
        """Plain backward."""
        loss.backward()  # type: ignore[no-untyped-call]

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        max_grad_norm: float,
    ) -> float:
        """Clip by the global norm."""
        norm = nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        if torch.isfinite(norm):
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(norm)

    def gather(self, values: Tensor) -> Tensor:
        """Nothing to gather."""
        return values

    def peak_memory(self) -> float:
        """CUDA's high-water mark, or the process's resident one."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**30
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
