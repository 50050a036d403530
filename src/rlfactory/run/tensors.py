"""Trees of plain values and tensors, such as an optimiser's state, as JSON and safetensors; no
pickle. What comes back is what went in, exactly: tuples, keys that are numbers, NaN and infinity.
"""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

KIND = "$"
"""The key of a JSON object that stands for what JSON doesn't know."""


class _Copies(dict[str, Tensor]):
    """Tensors by name; `former` ones of the same form lend their memory."""

    former: Mapping[str, Tensor] = {}


def pack(tree: object, former: Mapping[str, Tensor] | None = None) -> tuple[Any, dict[str, Tensor]]:
    """Values fit for JSON, and copies on the CPU of the tensors that they name.

    A tensor's name is its path, `state/0/exp_avg`. TypeError for what is neither plain nor tensor.
    `former` copies, if any, are overwritten by those of the same name and form.
    """
    tensors = _Copies()
    tensors.former = former or {}
    return _packed(tree, "", tensors), tensors


def unpack(values: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `pack` was given, with tensors of its own on the CPU."""
    if isinstance(values, list):
        return [unpack(value, tensors) for value in values]
    if not isinstance(values, dict):
        return values
    match values.get(KIND):
        case "tensor":
            return tensors[values["name"]].clone()  # a loaded one may be a window on its file
        case "tuple":
            return tuple(unpack(values["items"], tensors))
        case "float":
            return float(values["value"])
        case "dict":
            return {unpack(k, tensors): unpack(v, tensors) for k, v in values["items"]}
    return {key: unpack(value, tensors) for key, value in values.items()}


def _packed(tree: object, path: str, tensors: _Copies) -> Any:
    match tree:
        case Tensor():
            return _named(tree, path, tensors)
        case None | bool() | int() | str():
            return tree
        case float():
            return float(tree) if math.isfinite(tree) else {KIND: "float", "value": str(tree)}
        case list():
            return _items(tree, path, tensors)
        case tuple():
            return {KIND: "tuple", "items": _items(tree, path, tensors)}
        case Mapping():
            return _mapping(tree, path, tensors)
    raise TypeError(f"{path or 'this'} is a {type(tree).__name__}, which a checkpoint can't hold")


def _items(tree: list[Any] | tuple[Any, ...], path: str, tensors: _Copies) -> list[Any]:
    return [_packed(value, _below(path, i), tensors) for i, value in enumerate(tree)]


def _mapping(tree: Mapping[Any, Any], path: str, tensors: _Copies) -> dict[str, Any]:
    found = [(key, _packed(value, _below(path, key), tensors)) for key, value in tree.items()]
    if all(isinstance(key, str) and key != KIND for key in tree):
        return dict(found)
    return {KIND: "dict", "items": [[_packed(k, path, tensors), v] for k, v in found]}


def _named(tensor: Tensor, path: str, tensors: _Copies) -> dict[str, str]:
    name = path or "tensor"
    while name in tensors:  # the keys 0 and "0" have one path
        name += "_"
    # a copy: two tensors may share their memory, and a running optimiser goes on changing it
    tensors[name] = _copied(tensor.detach(), tensors.former.get(name))
    return {KIND: "tensor", "name": name}


def _copied(tensor: Tensor, former: Tensor | None) -> Tensor:
    if former is None or (former.shape, former.dtype) != (tensor.shape, tensor.dtype):
        return tensor.to("cpu", copy=True).contiguous()
    return former.copy_(tensor)


def _below(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)
