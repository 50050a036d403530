"""The contract of the hardware: devices, gradients and communication, in one process or several.

`train.build` calls `prepare` once, when the model is made. In each update the learner draws its
micro-batches from `pad_micro_batches`, calls `backward` for each, and then `step` or, if the update
is rejected, `discard_gradients`. `close` is the last call.

A static method `validate(options, run)` may check options of its own, and with them those of the
run (`utils.types.Faults`). It is compiled from its source while planning, so it uses builtins and
what it imports itself, without torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rlfactory.utils.errors import UserError

T = TypeVar("T")


class HardwareError(UserError, RuntimeError):
    """A device that is not available; the message says what to type instead."""


class PeerLostError(HardwareError):
    """Another process of the run does not answer any more."""


class AllRanksError(HardwareError):
    """An error that all ranks raise alike, so that only rank 0 reports it."""


class Hardware(ABC):
    """Where a run computes, and how its processes communicate.

    Constructors may name `loss_scaling` as a positional parameter: whether gradients are computed
    in float16, which needs scaled losses. Keyword-only parameters are the configuration.

    Collectives, which all ranks call in the same order or wait for each other until the timeout,
    are `step`, `all_gather`, `all_gather_list`, `all_reduce_sum`, `all_reduce_max`, `any_rank`,
    `first_rank_where`, `broadcast`, `prepare` and the iteration over `pad_micro_batches`; and
    `backward` where parameters are sharded. What is not abstract has the meaning of one process.

    Attributes:
        device: where this process computes.
        rank: the number of this process, from 0; rank 0 is the main process.
        world_size: the number of processes.
        tile: the rows of every pass of a network; None: they follow from the layout of batches.
    """

    device: torch.device
    rank: int
    world_size: int
    tile: int | None = None

    @property
    def divides_passes(self) -> bool:
        """Whether all ranks hold all samples, and the micro-batches of learning are divided among
        them, so that none depends on the number of ranks.
        """
        return self.tile is not None and self.world_size > 1

    def own_passes(self, starts: range) -> range:
        """Where this rank's micro-batches begin, a block, of those that begin at `starts`."""
        if not self.divides_passes:
            return starts
        first, end = (len(starts) * rank // self.world_size for rank in (self.rank, self.rank + 1))
        return starts[first:end]

    def gather_passes(self, values: Tensor) -> Tensor:
        """The rows `[n, ...]` that passes computed, of all ranks' where these are divided."""
        return self.all_gather(values) if self.divides_passes else values

    @contextmanager
    def whole_gradients(
        self, parameters: Sequence[nn.Parameter]
    ) -> Iterator[Sequence[nn.Parameter]]:
        """Inside the block backward passes add nothing up over ranks: each leaves its gradients in
        full at the parameters that are yielded. Afterwards `parameters` have what is left there.
        """
        yield parameters

    @property
    def network_device(self) -> torch.device:
        """Where the network that is trained is loaded, before `prepare`; `meta`: not at all."""
        return self.device

    @abstractmethod
    def backward(self, loss: Tensor) -> None:
        """Add a loss's gradients to `parameter.grad`.

        Args:
            loss: a scalar, weighted so that the sum over all ranks' micro-batches is the loss of
                the update.

        Raises:
            PeerLostError: a rank does not answer (sharded parameters).
        """

    @abstractmethod
    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        max_grad_norm: float,
    ) -> float | None:
        """Sum the gradients of all ranks, clip them by their global norm, update, and clear them.

        Args:
            optimizer: moves `parameters`.
            parameters: all that is trained, in the same order in all ranks.
            max_grad_norm: the largest norm that is not scaled down.

        Returns:
            The norm before clipping, the same in all ranks. If it is 0 or not finite, nothing is
            updated; None if that is an overflow of scaled losses, which is expected now and then
            and lowers the scale.

        Raises:
            HardwareError: scaled losses overflow again and again.
            PeerLostError: a rank does not answer.
        """

    @abstractmethod
    def all_gather(self, values: Tensor) -> Tensor:
        """Concatenate the rows of all ranks, in rank order.

        Args:
            values: `[rows, ...]`; ranks may have different numbers of rows.

        Returns:
            `[rows of all ranks, ...]`, of the same dtype.

        Raises:
            PeerLostError: a rank does not answer; so with all collectives below.
        """

    @abstractmethod
    def any_rank(self, flag: bool) -> bool:
        """Whether `flag` is true in any rank."""

    def first_rank_where(self, flag: bool) -> int | None:
        """The lowest rank in which `flag` is true; None if it is in none."""
        return 0 if flag else None

    def all_reduce_sum(self, value: float) -> float:
        """The sum of all ranks' values."""
        return value

    def all_reduce_max(self, value: float) -> float:
        """The largest of all ranks' values."""
        return value

    def all_gather_list(self, values: Sequence[T]) -> list[T]:
        """Plain values of all ranks, in rank order; ranks may have different numbers of them."""
        return list(values)

    def broadcast(self, value: T, source: int = 0) -> T:
        """The value of rank `source`, in all ranks.

        Args:
            value: anything that JSON can hold; that of other ranks is ignored.
            source: a rank.
        """
        return value

    def prepare(self, model: Any) -> None:
        """Shard a model's parameters, if this hardware does. Called before the optimizer is made.

        Args:
            model: an ImageModel or TextModel.

        Raises:
            HardwareError: this model can't be sharded.
        """
        del model

    def discard_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear the gradients without a step."""
        optimizer.zero_grad(set_to_none=True)

    def close(self) -> None:
        """Leave the group of processes; no collective is called afterwards."""
        return

    def pad_micro_batches(
        self, micro_batches: Iterator[T], padding: Callable[[], T | None]
    ) -> Iterator[tuple[T, bool]]:
        """Make every rank run the same number of forward passes, which sharded parameters need.

        Args:
            micro_batches: this rank's own.
            padding: makes a micro-batch of zero weight, for a rank that has fewer than another.

        Returns:
            Pairs `(micro_batch, counts)`; padding has `counts=False`.
        """
        return ((micro_batch, True) for micro_batch in micro_batches)

    @abstractmethod
    def peak_memory(self) -> float:
        """The most memory used so far, in GiB: the GPU's, or on a CPU this process's."""

    def take_peak_memory(self) -> dict[str, float]:
        """The most GPU memory since the last call, in GiB; empty on a CPU.

        Returns:
            `allocated` by tensors, and `reserved` by torch's allocator from the GPU.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps, as plain values, the same in all ranks."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Args:
            state: perhaps that of other hardware; unknown keys are ignored.
        """
        del state
