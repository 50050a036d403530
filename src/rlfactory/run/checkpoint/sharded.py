"""Checkpoints of a network that is sharded over ranks: torch.distributed.checkpoint's shards.

Each rank copies its own shards to the CPU and writes them to files of its own, in the background;
no full tensor is made. The files are safetensors (nothing is pickled), with each shard's place in
the full tensor in their headers, so that any number of ranks, or one process, can load them.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.tensor import DTensor

from rlfactory.model.base import Model
from rlfactory.run.checkpoint.find import SHARDS_FOLDER
from rlfactory.run.checkpoint.optimizer_state import parameter_names
from rlfactory.run.checkpoint.serialization import Form, copy_to_cpu

WEIGHTS, OPTIMIZER = "weights/", "optimizer/"
"""The beginnings of the names of tensors in the files."""
FILES = 16
"""Files of a rank: torch makes the content of each in memory, a 16th of the shard, to write it."""


def begin_shards(
    unfinished: Path, model: Model, optimizer: torch.optim.Optimizer | None
) -> Callable[[], None]:
    """Copy this rank's shards to the CPU, and begin to write them. Collective.

    Returns:
        A function that waits, in any thread, until all ranks have written theirs to the disk. It
        raises OSError where one of them could not.
    """
    state = {f"{WEIGHTS}{key}": part for key, part in model.weights.sharded_state_dict().items()}
    if optimizer is not None:
        moments = model.weights.sharded_optimizer_state(optimizer)
        state |= {f"{OPTIMIZER}{key}": part for key, part in moments.items()}
    # Ranks may have added their sets in different orders. Detached: a copy of a leaf that requires
    # a gradient would be one as well.
    state = {key: state[key].detach() for key in sorted(state)}
    writer = HuggingFaceStorageWriter(
        str(unfinished / SHARDS_FOLDER), _in_files(state), save_distributed=True
    )
    # a rank has nothing of a tensor with fewer rows than ranks
    own = {key: part for key, part in state.items() if _local(part).numel()}
    future: Any = async_save(
        own,
        storage_writer=writer,
        process_group=_background_group(dist.group.WORLD),
        async_stager=_CopyShards(),
    )

    def finish() -> None:
        try:
            future.result()
        except CheckpointException as error:
            raise _plain(error) from error

    return finish


def saved_forms(checkpoint: Path) -> dict[str, Form]:
    """The form of each full tensor of the weight sets, under `set/parameter`."""
    stored = {k: v for k, v in _tensors(checkpoint).items() if k.startswith(WEIGHTS)}
    return {
        key.removeprefix(WEIGHTS): Form(tuple(own.size), own.properties.dtype.is_floating_point)
        for key, own in stored.items()
    }


def whole_tensors(checkpoint: Path, prefix: str = WEIGHTS) -> dict[str, Tensor]:
    """The full tensors whose names begin with `prefix`, without it, in one process; of the weight
    sets those are `set/parameter`.
    """
    found: dict[str, Any] = {
        key: torch.empty(stored.size, dtype=stored.properties.dtype)
        for key, stored in _tensors(checkpoint).items()
        if key.startswith(prefix)
    }
    _load(checkpoint, found)
    return {key.removeprefix(prefix): tensor for key, tensor in found.items()}


def load_weights(checkpoint: Path, model: Model, names: Iterable[str]) -> None:
    """Restore some weight sets, whatever the number of ranks then and now. Collective."""
    weights = model.weights
    for name in names:
        weights.add(name, copied=True)
    prefixes = tuple(f"{name}/" for name in names)
    stored = _tensors(checkpoint)
    parts = {
        key: part.detach()
        for key, part in weights.sharded_state_dict().items()
        # a critic may be missing
        if key.startswith(prefixes) and ("/critic." not in key or f"{WEIGHTS}{key}" in stored)
    }
    _load(checkpoint, {f"{WEIGHTS}{key}": part for key, part in parts.items()})
    sharding = weights.sharding
    # also where tensors share the network's memory: what is gathered must be gathered again
    weights.load_state_dict(
        parts if sharding is None else {key: sharding.local(part) for key, part in parts.items()}
    )


def load_moments(
    checkpoint: Path, model: Model, optimizer: torch.optim.Optimizer
) -> dict[int, dict[str, Tensor]]:
    """An optimizer's tensors for its `load_state_dict`, by the number of the parameter. Collective.

    They are DTensors where the parameters are.
    """
    stored = _tensors(checkpoint)
    numbers = {name: number for number, name in enumerate(parameter_names(model, optimizer))}
    found: dict[str, Tensor] = {}
    state: dict[int, dict[str, Tensor]] = {}
    for key in sorted(key for key in stored if key.startswith(OPTIMIZER)):
        name, _, moment = key.removeprefix(OPTIMIZER).rpartition("/")
        if name not in numbers:  # of a critic that an earlier version had
            continue
        found[key] = _empty(stored[key], model.weights.parameters[name])
        state.setdefault(numbers[name], {})[moment] = found[key]
    _load(checkpoint, found)
    return state


class _CopyShards(AsyncStager):
    """Copies this rank's rows to the CPU before the background writes them.

    torch's own stagers copy the storage that a shard is a view of, and fail on some of FSDP's.
    """

    _synchronize_after_execute = False  # `stage` returns when all is copied

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The copies, in the form in which torch saves them."""
        return {key: _copied(tensor) for key, tensor in state_dict.items()}

    def synchronize_staging(self) -> None:
        """Nothing is left to wait for."""
        return

    def close(self) -> None:
        """Nothing is kept between checkpoints."""
        return


def _copied(tensor: Tensor) -> Tensor:
    copy = copy_to_cpu(_local(tensor))
    # not DTensor.from_local, which moves the copy back to the device of the mesh
    if isinstance(tensor, DTensor):
        return DTensor(copy, tensor._spec, requires_grad=False)  # type: ignore[no-untyped-call]
    return copy


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _empty(stored: TensorStorageMetadata, parameter: Tensor) -> Tensor:
    """A tensor to load into: sharded as the parameter if it has its shape, else full on the CPU."""
    dtype = stored.properties.dtype
    if stored.size == parameter.shape:
        return torch.empty_like(parameter.detach(), dtype=dtype)
    return torch.empty(stored.size, dtype=dtype)


def _load(checkpoint: Path, state: dict[str, Any]) -> None:
    reader = HuggingFaceStorageReader(str(checkpoint / SHARDS_FOLDER))
    is_shared = any(isinstance(tensor, DTensor) for tensor in state.values())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that one process loads alone is meant
            load(state, storage_reader=reader, no_dist=not is_shared)
    except CheckpointException as error:
        raise _plain(error) from error


def _tensors(checkpoint: Path) -> Mapping[str, TensorStorageMetadata]:
    """The tensors that are stored, read from the headers of all files."""
    reader = HuggingFaceStorageReader(str(checkpoint / SHARDS_FOLDER))
    found: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
    return found


def _in_files(state: Mapping[str, Tensor]) -> dict[str, int]:
    """The number of the file, from 1, of each tensor, so that files are about equally large."""
    sizes = {key: tensor.numel() * tensor.element_size() for key, tensor in state.items()}
    limit = max(sum(sizes.values()) / FILES, 1)
    before = accumulate(sizes.values(), initial=0)
    return {key: 1 + int(size // limit) for key, size in zip(sizes, before, strict=False)}


@lru_cache(maxsize=1)
def _background_group(world: Any) -> Any:
    """A group of all ranks for the background: collectives of two threads may not mix in one."""
    del world  # each has its own
    return dist.new_group(backend="gloo")


def _plain(error: CheckpointException) -> Exception:
    """The cause of a failure, which may be another rank's; torch's is no Exception."""
    causes = [cause for cause, *_ in error.failures.values()]
    for cause in causes:
        if isinstance(cause, OSError):
            return cause
    return RuntimeError(f"shards of a checkpoint: {causes[0] if causes else error}")
