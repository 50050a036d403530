"""Writes a checkpoint: weights, optimizer state, plain state, an export, and their checksums.

A checkpoint is written to a folder beside its final one, its manifest last, and renamed when all of
it is flushed to the disk. A folder without a manifest, or that differs from its manifest, is no
checkpoint.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rlfactory.model.base import Model
from rlfactory.model.weight_sets import POLICY
from rlfactory.run.atomic_write import flush, remove_all
from rlfactory.run.checkpoint.checksums import versions, write_manifest
from rlfactory.run.checkpoint.find import OPTIMIZER_FILE, STATE_FILE, WEIGHTS_FILE
from rlfactory.run.checkpoint.serialization import flatten
from rlfactory.utils.fault_injection import fault_point


def begin_checkpoint(
    folder: Path,
    model: Model,
    exported: str,
    state: Mapping[str, Any],
    optimizer: torch.optim.Optimizer | None = None,
    about: Mapping[str, Any] | None = None,
) -> Callable[[], None]:
    """Copy the state to the CPU, while training stands still; collective if the model is sharded.

    Args:
        exported: the weight set of which an export for other libraries is written too. Of a sharded
            model there is none: no process has all of it.
        state: all else that training has changed, as plain values: counters, controllers, ...
        about: more keys of the manifest, as plain values.

    Returns:
        A function that writes all files, in any thread: a complete checkpoint or none.
    """
    is_sharded = model.weights.sharding is not None
    optimizer_state = {} if optimizer is None else optimizer.state_dict()
    if is_sharded and optimizer is not None:  # its tensors are among the shards
        plain_state = {
            number: {key: value for key, value in values.items() if not isinstance(value, Tensor)}
            for number, values in optimizer_state["state"].items()
        }
        optimizer_state = {**optimizer_state, "state": plain_state}
    # flatten copies, so that training can go on while the returned function writes
    plain_optimizer, moments = flatten(optimizer_state)
    plain, _ = flatten(state)
    if optimizer is not None:
        plain["optimizer"] = plain_optimizer
    unfinished = folder.with_name(f".{folder.name}")
    remove_all(unfinished)  # of an earlier attempt
    if is_sharded:
        # imported here: it takes a second that most runs need not wait
        from rlfactory.run.checkpoint.sharded import begin_shards

        write_tensors = begin_shards(unfinished, model, optimizer)
    else:
        weights = model.weights.full_state_dict()
        write_tensors = partial(_write_full, unfinished, model, exported, weights, moments)
    manifest = {"versions": versions(), **(about or {})}
    return partial(_complete, unfinished, folder, write_tensors, plain, manifest)


def _complete(
    unfinished: Path,
    folder: Path,
    write_tensors: Callable[[], None],
    state: Mapping[str, Any],
    manifest: Mapping[str, Any],
) -> None:
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        write_tensors()
        text = json.dumps(state, indent=1, allow_nan=False)
        (unfinished / STATE_FILE).write_text(text + "\n", encoding="utf-8")
        fault_point("saving")
        # after all other files, so that a folder with a manifest is complete
        write_manifest(unfinished, manifest)
        fault_point("renaming")
        os.replace(unfinished, folder)
        flush(folder.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def begin_part(
    folder: Path, model: Model, optimizer: torch.optim.Optimizer
) -> Callable[[], None] | None:
    """This rank's part in `begin_checkpoint` of rank 0; None where it has none."""
    if model.weights.sharding is None:
        return None
    from rlfactory.run.checkpoint.sharded import begin_shards

    return begin_shards(folder.with_name(f".{folder.name}"), model, optimizer)


def checkpoint_bytes(model: Model, optimizer: torch.optim.Optimizer | None = None) -> int:
    """About the size of a checkpoint: each weight set, the export once more, the optimizer state.

    Of a sharded network, which has no export, the sizes on this rank are multiplied by the ranks
    that have a shard.
    """
    tensors, sharding = model.weights.state_dict(), model.weights.sharding
    size = sum(tensor.nbytes for tensor in tensors.values())
    moments = [] if optimizer is None else [v for s in optimizer.state.values() for v in s.values()]
    parts = [part for part in moments if isinstance(part, Tensor)]
    if sharding is not None:
        return sharding.shard_size * (size + sum(sharding.local(part).nbytes for part in parts))
    sets = {key.split("/", 1)[0] for key in tensors}
    return size + size // len(sets) + sum(part.nbytes for part in parts)


def _write_full(
    folder: Path,
    model: Model,
    exported: str,
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
) -> None:
    """Write full tensors, and the export from the same copies: the model may train meanwhile."""
    with torch.no_grad():
        model.export(folder, values_of(exported, weights))
    save_file({k: v.contiguous() for k, v in weights.items()}, folder / WEIGHTS_FILE)
    save_file(dict(moments), folder / OPTIMIZER_FILE)


def values_of(name: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a weight set by parameter; the policy's where it has none, as of a critic."""
    prefixes = (f"{POLICY}/", f"{name}/")
    return {k.removeprefix(p): v for p in prefixes for k, v in weights.items() if k.startswith(p)}
