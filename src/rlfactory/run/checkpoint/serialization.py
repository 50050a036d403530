"""Trees of plain values and tensors, such as an optimizer's state, as JSON and named tensors.

No pickle. What is restored equals what was saved exactly: tuples, keys that are numbers, NaN and
infinity. `flatten` also copies, so that training can go on while what it returned is written.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from rlfactory.run.folder import RunFolderError
from rlfactory.utils.data_files import FileError, require_file

Copy = Callable[[Tensor, Tensor | None], Tensor]
"""Makes a copy on the CPU of a tensor, perhaps in the memory of an earlier copy."""
KIND = "$"
"""The key of a JSON object that stands for a value which JSON does not have."""


def flatten(
    tree: object, reused: Mapping[str, Tensor] | None = None, copy: Copy | None = None
) -> tuple[Any, dict[str, Tensor]]:
    """Split nested mappings, lists and tuples of plain values and tensors into values fit for JSON
    and copies of the tensors on the CPU; those of an earlier call are `reused`, overwritten where
    name, shape and dtype are equal.

    Returns:
        The values, and the tensors by their path in the tree: `state/0/exp_avg`.

    Raises:
        TypeError: a value is neither plain nor a tensor.
    """
    tensors: dict[str, Tensor] = {}
    former = reused or {}
    make_copy = copy or copy_to_cpu

    def add(tensor: Tensor, path: str) -> dict[str, str]:
        name = path or "tensor"
        while name in tensors:  # the keys 0 and "0" have one path
            name += "_"
        # a copy: two tensors may share memory, and the optimizer changes its own in place
        tensors[name] = make_copy(tensor.detach(), former.get(name))
        return {KIND: "tensor", "name": name}

    return _flatten(tree, "", add), tensors


def unflatten(values: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The tree that `flatten` was called with; its tensors are copies on the CPU.

    KeyError, TypeError or ValueError where the values are not what `flatten` returned.
    """
    if isinstance(values, list):
        return [unflatten(value, tensors) for value in values]
    if not isinstance(values, dict):
        return values
    match values.get(KIND):
        case "tensor":
            return tensors[values["name"]].clone()  # a loaded one may be a view of its mapped file
        case "tuple":
            return tuple(unflatten(values["items"], tensors))
        case "float":
            return float(values["value"])
        case "dict":
            return {unflatten(k, tensors): unflatten(v, tensors) for k, v in values["items"]}
        case kind if KIND in values:
            raise ValueError(f"{KIND} stands for nothing that is known: {ascii(kind)[:40]}")
    return {key: unflatten(value, tensors) for key, value in values.items()}


def _flatten(tree: object, path: str, add: Callable[[Tensor, str], Any]) -> Any:
    match tree:
        case Tensor():
            return add(tree, path)
        case None | bool() | int() | str():
            return tree
        case float():
            return float(tree) if math.isfinite(tree) else {KIND: "float", "value": str(tree)}
        case list():
            return [_flatten(value, _below(path, i), add) for i, value in enumerate(tree)]
        case tuple():
            return {KIND: "tuple", "items": _flatten([*tree], path, add)}
        case Mapping():
            pairs = [(k, _flatten(value, _below(path, k), add)) for k, value in tree.items()]
            if all(isinstance(key, str) and key != KIND for key in tree):
                return dict(pairs)
            return {KIND: "dict", "items": [[_flatten(k, path, add), v] for k, v in pairs]}
    raise TypeError(f"{path or 'this'} is a {type(tree).__name__}, which a checkpoint can't hold")


def copy_to_cpu(tensor: Tensor, reused: Tensor | None = None, *, waits: bool = True) -> Tensor:
    """A contiguous copy on the CPU, in the memory of `reused` where shape and dtype are equal.

    Unless it `waits`, a GPU copies into pinned memory before it computes what follows, and the host
    goes on.
    """
    if reused is None or (reused.shape, reused.dtype) != (tensor.shape, tensor.dtype):
        pinned = tensor.is_cuda and not waits
        reused = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
    return reused.copy_(tensor, non_blocking=not waits)


def _below(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)


ERRORS = (SafetensorError, RuntimeError, ValueError, KeyError, TypeError, OverflowError)
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


@dataclass(frozen=True)
class Form:
    """The shape of a tensor, and whether its values are floating-point numbers."""

    shape: tuple[int, ...]
    is_float: bool

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "one number"
        return shape if self.is_float else f"{shape} of whole numbers"


def form_of(tensor: Tensor) -> Form:
    """The form of a tensor; of a DTensor the full shape."""
    return Form(tuple(tensor.shape), tensor.is_floating_point())


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a file, on the CPU; RunFolderError where it can't be read."""
    with _explained(path):
        return dict(load_file(path))


def read_forms(path: Path) -> dict[str, Form]:
    """The forms of the tensors in a file, from its header; RunFolderError as `read_tensors`."""
    with _explained(path), safe_open(path, "pt") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {n: Form(tuple(p.get_shape()), p.get_dtype() in FLOATS) for n, p in parts.items()}


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Errors of a file of tensors as one that names the file."""
    try:
        require_file(path)
        yield
    except FileError as error:
        raise RunFolderError(str(error)) from error
    except (*ERRORS, OSError) as error:
        reason = f"can't be read ({' '.join(str(error).split())[:200]})"
        problem = "is missing" if isinstance(error, FileNotFoundError) else reason
        raise RunFolderError(f"{path} {problem}; remove its checkpoint, to use another") from error
