"""Operations on rows of nested data: dataclasses, mappings, lists and tensors of equal length."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Self, TypeVar, cast

import torch
from torch import Tensor

T = TypeVar("T")


class SharedRows(ABC):
    """Data whose rows refer to values that several of them share, such as a prompt's embedding."""

    @abstractmethod
    def select(self, index: Tensor) -> "SharedRows":
        """The rows `index` `[n]`."""

    @classmethod
    @abstractmethod
    def append(cls, parts: Sequence[Self]) -> Self:
        """The rows of several objects, one after another."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting for it: to a GPU through pinned memory."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    # the allocator of pinned memory keeps the buffer until the copy has ended
    pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
    return pinned.to(device, non_blocking=True)


def index_rows(value: T, index: Tensor) -> T:
    """Select rows `index` `[n]` of every tensor and list in a nest; other values stay as is.

    The index is copied once to each device that tensors are on, not once for each tensor.
    """
    return _index(value, index, {index.device: index})


def _index(value: T, index: Tensor, copies: dict[torch.device, Tensor]) -> T:
    picked: Any = value
    if isinstance(value, Tensor):
        if value.device not in copies:
            copies[value.device] = to_device(index, value.device)
        picked = value[copies[value.device]]
    elif isinstance(value, SharedRows):
        picked = value.select(index)
    elif isinstance(value, Mapping):
        picked = {name: _index(item, index, copies) for name, item in value.items()}
    elif isinstance(value, list):
        picked = [value[i] for i in index.tolist()]
    elif is_dataclass(value) and not isinstance(value, type):
        columns = {f.name: _index(getattr(value, f.name), index, copies) for f in fields(value)}
        picked = replace(value, **columns)
    return picked


def widened(kind: type[T], value: Any, **added: Any) -> T:
    """A dataclass of a `kind` that has further fields than `value`, which are `added`."""
    return kind(**{**{f.name: getattr(value, f.name) for f in fields(value)}, **added})


def row_numbers(count: int, rows: Tensor | None) -> Tensor:
    """`rows`, or all of `count` rows where that is None."""
    return torch.arange(count) if rows is None else rows


def row_chunks(count: int, size: int) -> Iterator[Tensor]:
    """Yield the row numbers 0 to `count - 1` in order, at most `size` at a time."""
    for start in range(0, count, size):
        yield torch.arange(start, min(start + size, count))


def concat(nests: Sequence[T]) -> T:
    """Append the rows of several nests of the same form; other values are those of the first."""
    first: Any = nests[0]
    combined: Any = first
    if isinstance(first, Tensor):
        combined = torch.cat([cast(Tensor, nest) for nest in nests])
    elif isinstance(first, SharedRows):
        combined = first.append([cast(SharedRows, nest) for nest in nests])
    elif isinstance(first, Mapping):
        combined = {name: concat([cast(Any, nest)[name] for nest in nests]) for name in first}
    elif isinstance(first, list):
        combined = [item for nest in nests for item in cast(list[Any], nest)]
    elif is_dataclass(first) and not isinstance(first, type):
        columns = {f.name: [getattr(nest, f.name) for nest in nests] for f in fields(first)}
        combined = replace(first, **{name: concat(column) for name, column in columns.items()})
    return combined


def merge_rows(
    parts: Iterable[tuple[Any, Mapping[str, Tensor]]], count: int, names: Iterable[str] = ()
) -> dict[str, Tensor]:
    """Numbers `[count]` by name, of `names` at least, from those of some rows each; NaN for a row
    that has none of a name.
    """
    whole = {name: torch.full((count,), torch.nan) for name in names}
    for rows, columns in parts:
        for name, values in columns.items():
            whole.setdefault(name, torch.full((count,), torch.nan))[rows] = values
    return whole


def require(value: T | None, what: str) -> T:
    """Return an optional field of a rollout or batch; ValueError naming `what` if it is None."""
    if value is None:
        raise ValueError(f"this algorithm needs {what}, and there is none here")
    return value
