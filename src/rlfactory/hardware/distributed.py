"""Data parallelism over several processes, one device each: DDP or FSDP2."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import (
    _flatten_dense_tensors,
    _take_tensors,
    _unflatten_dense_tensors,
)

from rlfactory.hardware.base import AllRanksError, HardwareError, PeerLostError
from rlfactory.hardware.local import Local
from rlfactory.hardware.process_environment import AUTO, ProcessInfo, process_info
from rlfactory.utils.types import Faults, GPUName, NonNegativeInt, Positive, PositiveInt

if TYPE_CHECKING:
    from rlfactory.hardware.fsdp import FSDPParameters

T = TypeVar("T")

BUCKET = 25 * 2**20
"""Bytes of gradients that travel in one all-reduce."""


class Distributed(Local):
    """`processes` in all, started by torchrun or SLURM, or by the command through torchrun.

    Each rank samples whole groups and computes the gradient of its own samples; gradients are
    summed before a step, so that an update is that of one process. `ddp` has the full network in
    every rank; `fsdp2` shards it, the other weight sets and the optimizer's moments. Tensors on the
    CPU travel by gloo, those on GPUs by NCCL.
    """

    def __init__(
        self,
        loss_scaling: bool = False,
        *,
        strategy: Literal["ddp", "fsdp2"] = "ddp",
        processes: PositiveInt | Literal["auto"] = "auto",
        launcher: Literal["auto", "slurm"] = "auto",
        port: PositiveInt | None = None,
        shard_size: PositiveInt | None = None,
        offload: bool = False,
        defer_reduce: bool = False,
        timeout: Positive = 600.0,
        restarts: NonNegativeInt = 0,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        threads: PositiveInt | None = None,
        gpu: GPUName = "auto",
        memory_gb: Positive | None = None,
        deterministic: bool = False,
        tile: PositiveInt | None = None,
    ) -> None:
        """
        Args:
            strategy: ddp | fsdp2: the full network in every process, or sharded over them.
            processes: In all, on all machines; divides prompts_per_iteration; auto: those that a
                launcher has started, else one for each visible GPU.
            launcher: auto | slurm: torchrun, which the command calls if nobody did; or srun.
            port: At which processes find each other; null: a free one.
            shard_size: Of fsdp2: processes that share one copy of the network; null: all; divides
                them.
            offload: Of fsdp2: shards, gradients and the optimizer on the CPU.
            defer_reduce: Of fsdp2: gradients in full in each process until an update's last
                micro-batch.
            timeout: > 0; seconds until a process that does not answer counts as lost.
            restarts: How often torchrun starts the processes again after one has failed.
            threads: CPU threads of a process; null: OMP_NUM_THREADS, or its share of the cores.
            memory_gb: GiB of each device to plan for; null: that of gpu, or of a CPU its machine.
            tile: Samples or items of every pass, cut by their numbers, and sums in an order that
                only these give: the same bits for any micro_batch, sample_batch and number of
                processes or threads; each process then keeps all samples. null: free.
        """
        del gpu, memory_gb, restarts  # the plan and the launcher read them
        info = process_info({"launcher": launcher, "port": port}) or ProcessInfo(0, 1, 0, "", 0)
        self.rank, self.world_size = info.rank, info.world_size
        if processes not in (AUTO, info.world_size):
            raise AllRanksError(
                f"hardware.processes={processes}, but the launcher has started {info.world_size};"
                f" type hardware.processes={info.world_size}, or have it start {processes}"
            )
        super().__init__(
            loss_scaling, device=device, threads=threads, deterministic=deterministic, tile=tile
        )
        self.device = _device_of(self.device, info)
        self._connect(info, timeout)
        self._defer = defer_reduce
        self._sharded: FSDPParameters | None = None
        if strategy == "fsdp2":
            from rlfactory.hardware import fsdp  # its imports take a second

            self._sharded = fsdp.FSDPParameters(
                timeout=timedelta(seconds=timeout),
                shard_size=shard_size,
                offload=offload,
                exact=tile is not None,
            )

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """Every process samples the same number of groups; shards are those of whole processes."""

        def nearest(number: int, wanted: int) -> tuple[int, str]:
            divisors = [n for n in range(1, number + 1) if number % n == 0]
            near = sorted(divisors, key=lambda n: abs(n - wanted))[:3]
            return near[0], ", ".join(map(str, sorted(near)))

        prompts, processes = run["prompts_per_iteration"], options["processes"]
        if prompts % processes:
            best, listed = nearest(prompts, processes)
            more = -(-prompts // processes) * processes
            message = (
                f"is {processes}, which does not divide the {prompts} groups of an iteration;"
                f" nearest are {listed}, or prompts_per_iteration={more}"
            )
            yield "processes", message, f"hardware.processes={best}"
        if (tile := options["tile"]) is not None:
            each, unit = prompts // processes * run["group_size"], run["branches"]
            if processes > 1 and each % tile:
                best, listed = nearest(each, tile)
                message = f"is {tile}, which does not divide the {each} samples of a process"
                yield "tile", f"{message}; nearest: {listed}", f"hardware.tile={best}"
            elif processes > 1 and unit > 1 and (tile % unit or run["branch_at"] == "step"):
                message = f"is {tile}; with branches={unit}, drawn together, it needs one process"
                yield "tile", message, "hardware.processes=1"
        if options["strategy"] != "fsdp2":
            for key, default in (("shard_size", None), ("offload", False), ("defer_reduce", False)):
                if options[key] != default:
                    message = f"is {options[key]}, and hardware.strategy=ddp shards nothing"
                    yield key, message, "hardware.strategy=fsdp2"
            return
        if (size := options["shard_size"]) is not None and processes % size:
            best, listed = nearest(processes, size)
            message = f"is {size}, which does not divide the {processes} processes"
            yield "shard_size", f"{message}; nearest: {listed}", f"hardware.shard_size={best}"
        model, optimizer = run["model"], str(run["optimizer"].get("_target_"))
        if model.get("value_path") is not None:
            message = "fsdp2 does not shard a critic of its own; allowed is a value head"
            yield "strategy", message, "model.value_path=null"
        if model.get("finetune") != "lora" and optimizer.startswith("bitsandbytes."):
            message = "fsdp2 of all weights shards moments in float32; 8-bit ones are for LoRA"
            yield "optimizer", message, "optimizer=adamw"

    def _connect(self, info: ProcessInfo, timeout: float) -> None:
        if dist.is_initialized():  # by an earlier run in this process
            return
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        limit = timedelta(seconds=timeout)
        with _communicating(f"no contact at {info.master_addr}:{info.master_port}"):
            store = _store(info, limit)
            dist.init_process_group(
                backend, timeout=limit, store=store, rank=info.rank, world_size=info.world_size
            )

    @property
    def network_device(self) -> torch.device:
        """For fsdp2 rank 0 reads the network into main memory, and others get their shards."""
        if self._sharded is None:
            return self.device
        return torch.device("cpu" if self.rank == 0 else "meta")

    def prepare(self, model: Any) -> None:
        if self._sharded is None:
            super().prepare(model)
        else:
            self._sharded.shard_model(model, self.device.type)

    @contextmanager
    def whole_gradients(
        self, parameters: Sequence[nn.Parameter]
    ) -> Iterator[Sequence[nn.Parameter]]:
        if self._sharded is None:
            yield parameters
        else:
            with self._sharded.whole_gradients(parameters) as whole:
                yield whole

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        max_grad_norm: float,
    ) -> float | None:
        """Sum the gradients of all ranks, then clip by the global norm."""
        sharded = self._sharded
        with _communicating():
            if self.tile is None:  # else they are summed, over all ranks, by the learner
                sum_gradients(parameters if sharded is None else sharded.replicated(parameters))
            if sharded is not None:
                norm = sharded.clip(parameters, max_grad_norm, self.unscale)
        if sharded is not None:
            return self.step_if_finite(optimizer, norm)
        return super().step(optimizer, parameters, max_grad_norm)

    def close(self) -> None:
        """Leave the process group, and restore torch's settings."""
        super().close()
        if dist.is_initialized():
            dist.destroy_process_group()

    def pad_micro_batches(
        self, micro_batches: Iterator[T], padding: Callable[[], T | None]
    ) -> Iterator[tuple[T, bool]]:
        """As many in all ranks, if parameters are sharded: each pass gathers them from all. At
        least one where all ranks' are divided.
        """
        if self._sharded is None:
            first = next(micro_batches, None)
            if first is not None:
                yield from ((batch, True) for batch in chain([first], micro_batches))
            elif self.divides_passes and (spare := padding()) is not None:
                yield spare, False  # where values are gathered, it gives their form
            return
        self._sharded.passes_are_equal = True
        try:
            own = next(micro_batches, None)
            is_left = self.any_rank(own is not None)
            while is_left:
                counts, micro_batch = own is not None, padding() if own is None else own
                assert micro_batch is not None
                own = next(micro_batches, None)
                is_left = self.any_rank(own is not None)
                if self.tile is None:
                    self._sharded.set_gradient_sync(not (self._defer and is_left))
                yield micro_batch, counts
        finally:
            self._sharded.passes_are_equal = False
            self._sharded.passes_end()

    def all_gather(self, values: Tensor) -> Tensor:
        """The rows of all ranks, in rank order; ranks may have different numbers of them."""
        sent = values.contiguous()
        sizes = self._all_sizes(len(sent))
        as_bytes = sent.dtype == torch.bool  # gloo has no bool
        sent = sent.to(torch.uint8) if as_bytes else sent
        # all_gather needs equal shapes: pad to the longest, and cut afterwards
        padded = sent.new_zeros(max(sizes), *sent.shape[1:])
        padded[: len(sent)] = sent
        received = [torch.empty_like(padded) for _ in sizes]
        with _communicating():
            dist.all_gather(received, padded)
        rows = torch.cat([part[:size] for part, size in zip(received, sizes, strict=True)])
        return rows.bool() if as_bytes else rows

    def all_gather_list(self, values: Sequence[T]) -> list[T]:
        return [value for own in self._all_gather_objects([*values]) for value in own]

    def any_rank(self, flag: bool) -> bool:
        return self.all_reduce_max(float(flag)) > 0

    def first_rank_where(self, flag: bool) -> int | None:
        lowest = -self.all_reduce_max(float(-self.rank if flag else -self.world_size))
        return None if lowest == self.world_size else int(lowest)

    def all_reduce_sum(self, value: float) -> float:
        return self._all_reduce(value, dist.ReduceOp.SUM)

    def all_reduce_max(self, value: float) -> float:
        return self._all_reduce(value, dist.ReduceOp.MAX)

    def broadcast(self, value: T, source: int = 0) -> T:
        return self._all_gather_objects(value if self.rank == source else None)[source]  # type: ignore[return-value]

    def _all_gather_objects(self, value: T) -> list[T]:
        """Plain values of all ranks, by gloo."""
        found: list[Any] = [None] * self.world_size
        with _communicating():
            dist.all_gather_object(found, value)
        return found

    def _all_reduce(self, value: float, operation: Any) -> float:
        # float64 on the CPU: sums of counts stay exact, and no GPU is waited for
        number = torch.tensor([value], dtype=torch.float64)
        with _communicating():
            dist.all_reduce(number, operation)
        return float(number)

    def _all_sizes(self, own: int) -> list[int]:
        """The number of rows of each rank."""
        counts = torch.zeros(self.world_size, dtype=torch.int64)
        counts[self.rank] = own
        with _communicating():
            dist.all_reduce(counts)
        return counts.tolist()


def _device_of(kind: torch.device, info: ProcessInfo) -> torch.device:
    """The GPU of this process's local rank; SLURM may show each task only its own."""
    if kind.type != "cuda":
        return kind
    count = torch.cuda.device_count()
    number = 0 if count == 1 and "SLURM_PROCID" in os.environ else info.local_rank
    if number >= count:
        raise HardwareError(
            f"process {info.rank} would be number {number} on this machine, which has {count} GPUs;"
            f" type hardware.processes={count} at most for each machine, or hardware.device=cpu"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def _store(info: ProcessInfo, timeout: timedelta) -> Any:
    """The store through which ranks find each other.

    torchrun keeps one through its restarts, with what the ranks before have left there; so the keys
    of each attempt have a prefix.
    """
    if info.world_size == 1:
        return dist.HashStore()  # type: ignore[attr-defined]
    store, _, _ = next(dist.rendezvous(info.url, info.rank, info.world_size, timeout=timeout))  # type: ignore[attr-defined]
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"restart_{restart}", store)  # type: ignore[attr-defined]


@contextmanager
def _communicating(problem: str = "another process does not answer any more") -> Iterator[None]:
    """Raise PeerLostError for an error of torch's communication, which has no class of its own."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except RuntimeError as error:
        # of a GPU, which no other process has caused
        if isinstance(error, HardwareError | torch.OutOfMemoryError | torch.AcceleratorError):
            raise
        reason = str(error).strip().splitlines()[0]
        raise PeerLostError(f"{problem}: {reason}") from error


def sum_gradients(parameters: Sequence[nn.Parameter], bucket: int = BUCKET) -> None:
    """Replace `parameter.grad` by the sum over all ranks, `bucket` bytes at a time.

    A parameter without a gradient in any rank stays without; one that has none only in this rank,
    as when it has no samples of a minibatch, gets one.
    """
    has_gradient = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
    # ranks must agree on what they send before they send it
    dist.all_reduce(has_gradient, dist.ReduceOp.MAX)
    trained = [p for p, has in zip(parameters, has_gradient.tolist(), strict=True) if has]
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    pending = []
    # all are under way before the first is waited for
    for group in _take_tensors([p.grad for p in trained], bucket):  # type: ignore[no-untyped-call]
        flat: Tensor = _flatten_dense_tensors(group)  # type: ignore[no-untyped-call]
        pending.append((group, flat, dist.all_reduce(flat, async_op=True)))
    for group, flat, work in pending:
        assert work is not None
        work.wait()
        totals = _unflatten_dense_tensors(flat, group)  # type: ignore[no-untyped-call]
        for gradient, total in zip(group, totals, strict=True):
            gradient.copy_(total)
