"""The first operation of a network that gives other bits in another layout of the batches.

A process with RLFACTORY_OPERATIONS=FOLDER writes to that folder, at its first optimizer step, what
each module of the network has made of each row of its input so far, as hashes. Two layouts give the
rows in other orders and batches, but a row is known by its bits.
"""

import json
import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

VARIABLE = "RLFACTORY_OPERATIONS"
Calls = dict[str, dict[str, list[str]]]
"""By module, in the order in which they have first ended: the hashes of outputs, by input's."""


def record_operations(model: Any, optimizer: torch.optim.Optimizer, rank: int) -> None:
    """Record what modules do until the first optimizer step, if the environment asks for it.

    Rows are the first dimension of the tensors of the model's network; `rank` names the file.
    """
    if (folder := os.environ.get(VARIABLE)) is None:
        return
    network: nn.Module = model.network
    calls: Calls = {}
    hooks: list[Any] = []

    def finish(*_: object) -> None:
        (Path(folder) / f"{rank}.json").write_text(json.dumps(calls))
        for hook in hooks:
            hook.remove()

    def record(name: str, inputs: object, output: object) -> None:
        found = calls.setdefault(name, {})
        rows = next((len(t) for t in _tensors(output) if t.ndim), 0)
        pairs = zip(_hashes(inputs, rows), _hashes(output, rows), strict=True)
        for given, made in pairs:
            if made not in (known := found.setdefault(given, [])):
                known.append(made)

    for name, module in network.named_modules():
        label = f"{name or 'the network'} ({type(module).__name__.removeprefix('FSDP')})"
        hooks.append(
            module.register_forward_hook(
                lambda _, args, kwargs, output, label=label: record(label, (args, kwargs), output),
                with_kwargs=True,
            )
        )
    hooks.append(optimizer.register_step_pre_hook(finish))


def first_difference(one: Path, other: Path) -> str | None:
    """The first module that has made other bits of a row with the same bits; None: there is none.

    The folders are of the same iteration in two layouts.
    """
    ours, theirs = _read(one), _read(other)
    for name, calls in ours.items():
        known = theirs.get(name, {})
        if any(given in known and not {*made} & {*known[given]} for given, made in calls.items()):
            return name
    return None


def _read(folder: Path) -> Calls:
    """The calls of all ranks."""
    found: Calls = {}
    for path in sorted(folder.glob("*.json")):
        for name, calls in json.loads(path.read_text()).items():
            known = found.setdefault(name, {})
            for given, made in calls.items():
                known.setdefault(given, []).extend(made)
    return found


def _tensors(value: object) -> Sequence[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def _hashes(value: object, rows: int) -> Iterator[str]:
    """A hash of each row of all tensors; a tensor that has not so many rows counts for each."""
    common, divided = blake2b(digest_size=8), list[Tensor]()
    for tensor in (each.detach().cpu() for each in _tensors(value)):
        if tensor.ndim and len(tensor) == rows:
            divided.append(tensor)
        else:
            common.update(_bytes(tensor))
    for row in range(rows):
        found = common.copy()
        for tensor in divided:
            found.update(_bytes(tensor[row]))
        yield found.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
