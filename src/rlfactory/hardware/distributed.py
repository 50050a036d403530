"""Many processes, each on a device of its own, that learn as one."""

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlfactory.hardware.base import CommonError, Hardware, HardwareError, LostError
from rlfactory.hardware.gradients import sum_gradients
from rlfactory.hardware.local import Local
from rlfactory.ranks import Place, place
from rlfactory.types import NonNegativeInt, Positive, PositiveInt

if TYPE_CHECKING:
    from rlfactory.hardware.sharded import Sharded

T = TypeVar("T")

log = logging.getLogger(__name__)


class Distributed(Hardware):
    """`processes` in all, found by torchrun, SLURM or started by the command itself.

    Each samples whole groups and computes the gradient of its own samples; gradients are summed
    before a step, so that an update is that of one process. `ddp` keeps the network whole
    everywhere, `fsdp2` divides it, and the other weight sets and the optimiser with it. Numbers of
    the CPU go by gloo, those of GPUs by NCCL.
    """

    def __init__(
        self,
        loss_scaling: bool = False,
        *,
        strategy: Literal["ddp", "fsdp2"] = "ddp",
        processes: PositiveInt = 1,
        launcher: Literal["auto", "slurm"] = "auto",
        port: PositiveInt | None = None,
        timeout: Positive = 600.0,
        restarts: NonNegativeInt = 0,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        threads: PositiveInt | None = None,
        memory_gb: Positive | None = None,
    ) -> None:
        del memory_gb, restarts  # the plan and the launcher read them
        node = {"launcher": launcher, "port": port}
        here = place(node) or Place(0, 1, 0, "", 0)
        self.rank, self.world_size = here.rank, here.world
        if here.world != processes:
            raise CommonError(
                f"hardware.processes={processes}, but the launcher has started {here.world};"
                f" type hardware.processes={here.world}, or have it start {processes}"
            )
        self._local = Local(loss_scaling, device=device, threads=threads)
        self.device = self._local.device = _device_of(self._local.device, here)
        self._connect(here, timeout)
        self._sharded = _sharded() if strategy == "fsdp2" else None

    def _connect(self, here: Place, timeout: float) -> None:
        if dist.is_initialized():  # by an earlier run in this process
            return
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        limit = timedelta(seconds=timeout)
        with _asking(f"no contact at {here.address}:{here.port}"):
            store = _own_store() if here.world == 1 else _common_store(here, limit)
            dist.init_process_group(
                backend, timeout=limit, store=store, rank=here.rank, world_size=here.world
            )

    def prepare(self, model: Any) -> None:
        """Divide its network, for fsdp2."""
        if self._sharded is not None:
            self._sharded.divide(model, self.device.type)

    def backward(self, loss: Tensor) -> None:
        """Plain backward; a divided network sums its gradients meanwhile."""
        self._local.backward(loss)

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        max_grad_norm: float,
    ) -> float | None:
        """Sum the gradients of all, then clip by the global norm."""
        if self._sharded is not None:
            with _asking():
                return self._sharded.step(optimizer, parameters, max_grad_norm)
        with _asking():
            sum_gradients(parameters)
        return self._local.step(optimizer, parameters, max_grad_norm)

    def forget(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear the gradients, also of a divided network."""
        super().forget(optimizer)
        if self._sharded is not None:
            self._sharded.forget()

    def close(self) -> None:
        """Leave the group of processes."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def evened(
        self, chunks: Iterator[T], spare: Callable[[], T | None]
    ) -> Iterator[tuple[T, bool]]:
        """Equally many in all processes, where the network is divided."""
        if self._sharded is None:
            yield from super().evened(chunks, spare)
            return
        yield from self._alike(chunks, spare)

    def _alike(
        self, chunks: Iterator[T], spare: Callable[[], T | None]
    ) -> Iterator[tuple[T, bool]]:
        while self.any((chunk := next(chunks, None)) is not None):
            found = spare() if chunk is None else chunk
            assert found is not None
            yield found, chunk is not None

    def gather(self, values: Tensor) -> Tensor:
        """The rows of all processes, in rank order; they may have different numbers of them."""
        sent = values.contiguous()
        sizes = self._sizes(len(sent))
        longest = max(sizes)
        as_bytes = sent.dtype == torch.bool  # which gloo does not know
        sent = sent.to(torch.uint8) if as_bytes else sent
        room = sent.new_zeros(longest, *sent.shape[1:])
        room[: len(sent)] = sent
        found = [torch.empty_like(room) for _ in sizes]
        with _asking():
            dist.all_gather(found, room)
        whole = torch.cat([part[:size] for part, size in zip(found, sizes, strict=True)])
        return whole.bool() if as_bytes else whole

    def gather_texts(self, texts: Sequence[str]) -> list[str]:
        """Those of all processes, in rank order, as bytes."""
        written = [text.encode("utf-8", "surrogatepass") for text in texts]
        lengths = self.gather(torch.tensor([len(text) for text in written], dtype=torch.int64))
        whole = self.gather(_bytes(b"".join(written))).numpy().tobytes()
        found, begin = [], 0
        for length in lengths.tolist():
            found.append(whole[begin : begin + length].decode("utf-8", "surrogatepass"))
            begin += length
        return found

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process."""
        return self.largest(float(flag)) > 0

    def first(self, flag: bool) -> int | None:
        """The lowest rank for which it is so; None where it is for none."""
        lowest = -self.largest(float(-self.rank if flag else -self.world_size))
        return None if lowest == self.world_size else int(lowest)

    def total(self, value: float) -> float:
        """The sum over all processes."""
        return self._reduced(value, dist.ReduceOp.SUM)

    def largest(self, value: float) -> float:
        """The largest of all processes' values."""
        return self._reduced(value, dist.ReduceOp.MAX)

    def tell(self, value: T, source: int = 0) -> T:
        """What rank `source` has, as JSON."""
        ours = json.dumps(value) if self.rank == source else ""
        told: T = json.loads(self.gather_texts([ours])[source])
        return told

    def peak_memory(self) -> float:
        """That of this process, or of its GPU."""
        return self._local.peak_memory()

    def state_dict(self) -> dict[str, Any]:
        """That of the scaler of losses, the same in all processes."""
        return self._local.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave."""
        self._local.load_state_dict(state)

    def _reduced(self, value: float, how: Any) -> float:
        number = torch.tensor([value], dtype=torch.float64)
        with _asking():
            dist.all_reduce(number, how)
        return float(number)

    def _sizes(self, ours: int) -> list[int]:
        found = torch.zeros(self.world_size, dtype=torch.int64)
        found[self.rank] = ours
        with _asking():
            dist.all_reduce(found)
        sizes: list[int] = found.tolist()
        return sizes


def _device_of(kind: torch.device, here: Place) -> torch.device:
    """A GPU of this process's own; SLURM may show each task no other."""
    if kind.type != "cuda":
        return kind
    count = torch.cuda.device_count()
    number = 0 if count == 1 and "SLURM_PROCID" in os.environ else here.local
    if number >= count:
        raise HardwareError(
            f"process {here.rank} would be number {number} on this machine, which has {count} GPUs;"
            f" type hardware.processes={count} at most for each machine, or hardware.device=cpu"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def _own_store() -> Any:
    return dist.HashStore()  # type: ignore[attr-defined]


def _common_store(here: Place, timeout: timedelta) -> Any:
    """Where processes meet. torchrun keeps one through its restarts, and in it what the processes
    of before have left; so each time has names of its own.
    """
    store, _, _ = next(dist.rendezvous(here.url, here.rank, here.world, timeout=timeout))  # type: ignore[attr-defined]
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"restart_{restart}", store)  # type: ignore[attr-defined]


def _sharded() -> "Sharded":
    from rlfactory.hardware.sharded import Sharded  # what it imports takes a second

    return Sharded()


@contextmanager
def _asking(what: str = "another process does not answer any more") -> Iterator[None]:
    """LostError where others can't be asked."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except RuntimeError as error:
        if isinstance(error, HardwareError):
            raise
        reason = str(error).strip().splitlines()[0]
        raise LostError(f"{what}: {reason}") from error


def _bytes(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else _NO_BYTES


_NO_BYTES = torch.empty(0, dtype=torch.uint8)
