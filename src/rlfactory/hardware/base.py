"""The contract of the hardware: what in a loop differs between one process and many."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class HardwareError(RuntimeError):
    """A device that is not there; the message says what to type instead."""


class Hardware(ABC):
    """`rank` of `world_size` processes, computing on `device`."""

    device: torch.device
    rank: int
    world_size: int

    @abstractmethod
    def backward(self, loss: Tensor) -> None:
        """Add a loss's gradients to the parameters'."""

    @abstractmethod
    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        max_grad_norm: float,
    ) -> float | None:
        """Clip, update and clear the gradients; returns their norm before clipping.

        Where the norm, the same in all processes, is not finite, nothing is updated. Of scaled
        losses that is to be expected now and then: it returns None, and the next are scaled less.
        """

    @abstractmethod
    def gather(self, values: Tensor) -> Tensor:
        """The rows of all processes, in rank order."""

    @abstractmethod
    def any(self, flag: bool) -> bool:
        """Whether it is so in any process; all of them ask, and all get the same answer."""

    @abstractmethod
    def peak_memory(self) -> float:
        """The most memory used so far, in GiB: the device's, or the process's on a CPU."""

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart, as plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave."""
        del state
