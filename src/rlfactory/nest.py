"""Nests of dataclasses, mappings, lists and tensors that hold a row for each sample."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

T = TypeVar("T")


def take(value: T, index: Tensor) -> T:
    """Rows `index` of every tensor and list inside a nest of dataclasses and mappings."""
    picked: Any = value
    if isinstance(value, Tensor):
        picked = value[index.to(value.device)]
    elif isinstance(value, Mapping):
        picked = {name: take(item, index) for name, item in value.items()}
    elif isinstance(value, list):
        picked = [value[i] for i in index.tolist()]
    elif is_dataclass(value) and not isinstance(value, type):
        rows = {f.name: take(getattr(value, f.name), index) for f in fields(value)}
        picked = replace(value, **rows)
    return picked  # type: ignore[no-any-return]


def chunks(count: int, size: int) -> Iterator[Tensor]:
    """The row numbers 0 to `count - 1`, at most `size` at a time."""
    for start in range(0, count, size):
        yield torch.arange(start, min(start + size, count))


def join(parts: Sequence[T]) -> T:
    """The rows of several nests of the same form, one after another."""
    first: Any = parts[0]
    joined: Any = first
    if isinstance(first, Tensor):
        joined = torch.cat([cast(Tensor, part) for part in parts])
    elif isinstance(first, Mapping):
        joined = {name: join([cast(Any, part)[name] for part in parts]) for name in first}
    elif isinstance(first, list):
        joined = [item for part in parts for item in cast(list[Any], part)]
    elif is_dataclass(first) and not isinstance(first, type):
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(first)}
        joined = replace(first, **{name: join(column) for name, column in columns.items()})
    return joined  # type: ignore[no-any-return]


def present(value: T | None, what: str) -> T:
    """The value; an error where a rollout or a batch of this kind holds none."""
    if value is None:
        raise ValueError(f"this algorithm needs {what}, and there is none here")
    return value
