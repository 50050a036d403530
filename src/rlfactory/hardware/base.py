"""The contract of the hardware: what in a loop differs between one process and many."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


class HardwareError(RuntimeError):
    """A device that is not there; the message says what to type instead."""


class LostError(HardwareError):
    """Another process of the run does not answer any more."""


class CommonError(HardwareError):
    """What all processes of a run find alike, so that one of them is enough to say it."""


class Hardware(ABC):
    """`rank` of `world_size` processes, computing on `device`.

    Whatever asks others is called by all processes, in the same order. What is not abstract is
    what it means where there is one process.
    """

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

    def first(self, flag: bool) -> int | None:
        """The lowest rank for which it is so; None where it is for none."""
        return 0 if flag else None

    def total(self, value: float) -> float:
        """The sum over all processes."""
        return value

    def largest(self, value: float) -> float:
        """The largest of all processes' values."""
        return value

    def gather_texts(self, texts: Sequence[str]) -> list[str]:
        """Those of all processes, in rank order."""
        return list(texts)

    def tell(self, value: T, source: int = 0) -> T:
        """What rank `source` has in the place of this value, which is fit for JSON."""
        del source
        return value

    def prepare(self, model: Any) -> None:
        """Divide a model that has just been made, where that is the way."""
        del model

    def adopt(self, optimizer: torch.optim.Optimizer, model: Any) -> None:
        """Divide an optimiser that has just been made, where that is the way."""
        del optimizer, model

    def forget(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear the gradients without a step."""
        optimizer.zero_grad(set_to_none=True)

    def close(self) -> None:
        """Let go of the other processes; none of them is asked again."""
        return

    def evened(
        self, chunks: Iterator[T], spare: Callable[[], T | None]
    ) -> Iterator[tuple[T, bool]]:
        """`chunks`, each with whether it counts. Where a network is divided, all processes run it
        equally often: one that has fewer chunks than another makes a `spare` one in their place.
        """
        del spare
        return ((chunk, True) for chunk in chunks)

    @abstractmethod
    def peak_memory(self) -> float:
        """The most memory used so far, in GiB: the device's, or the process's on a CPU."""

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart, as plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave."""
        del state
