"""One process, plain torch."""

import logging
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rlfactory.hardware.base import Hardware, HardwareError
from rlfactory.types import Positive, PositiveInt

log = logging.getLogger(__name__)

OVERFLOWS = 25
"""Updates in a row that may be lost; by then the scale is 2^-9, and it was not the scale."""


class Local(Hardware):
    """A CPU or one GPU; `auto` takes the GPU where there is one.

    `loss_scaling` multiplies losses by a power of 2, so that gradients do not vanish in float16,
    and divides the gradients by it before they are clipped.
    """

    rank = 0
    world_size = 1

    def __init__(
        self,
        loss_scaling: bool = False,
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
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=loss_scaling)
        self._overflows = 0

    def backward(self, loss: Tensor) -> None:
        """Plain backward, of a loss that may be scaled."""
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        max_grad_norm: float,
    ) -> float | None:
        """Clip by the global norm."""
        self._scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        sound = bool(torch.isfinite(norm))
        if sound:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not self._scaler.is_enabled():
            return float(norm)
        self._scaler.update()
        self._count(sound)
        return float(norm) if sound else None

    def _count(self, sound: bool) -> None:
        """Overflows in a row; an error where there is no end of them."""
        self._overflows = 0 if sound else self._overflows + 1
        if sound:
            return
        scale = self._scaler.get_scale()
        log.info("an update was left out: gradients overflowed; losses are now times %g", scale)
        if self._overflows == OVERFLOWS:
            raise HardwareError(
                f"gradients overflowed float16 in {OVERFLOWS} updates in a row, with losses scaled"
                f" down to {scale:g} times; try precision=bf16, or a smaller optimizer.lr"
            )

    def gather(self, values: Tensor) -> Tensor:
        """Nothing to gather."""
        return values

    def any(self, flag: bool) -> bool:
        """There is nobody else to ask."""
        return flag

    def peak_memory(self) -> float:
        """CUDA's high-water mark, or the process's resident one."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**30
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30

    def state_dict(self) -> dict[str, Any]:
        """How much losses are scaled, and how many updates in a row were lost to that."""
        if not self._scaler.is_enabled():
            return {}
        return {"scaler": self._scaler.state_dict(), "overflows": self._overflows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`; losses that were not scaled begin to be as in a new run."""
        if self._scaler.is_enabled() and "scaler" in state:
            self._scaler.load_state_dict(dict(state["scaler"]))
            self._overflows = state["overflows"]
