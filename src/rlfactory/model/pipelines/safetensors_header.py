"""The header of a safetensors file, read without torch."""

import struct
from pathlib import Path
from typing import Any, TypedDict

from rlfactory.utils.data_files import mismatch, parse_json, require_file

LARGEST_HEADER = 100_000_000
"""Bytes, the limit of the format."""


METADATA = "__metadata__"


class _Entry(TypedDict):
    """What the header says of a tensor."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


def _is_plain(entry: Any) -> bool:
    """Whether an entry is evidently what a header has."""
    if type(entry) is not dict or entry.keys() != _Entry.__annotations__.keys():
        return False
    numbers = entry["shape"], entry["data_offsets"]
    are_lists = all(type(given) is list for given in numbers)
    return (
        are_lists
        and {*map(type, [*numbers[0], *numbers[1]])} <= {int}
        and type(entry["dtype"]) is str
    )


def read_header(file: Path) -> dict[str, Any]:
    """Dtype and shape of each tensor by its name, and `__metadata__`: 8 bytes of length, then JSON.

    Raises:
        ValueError: it is no safetensors file.
        OSError: it can't be read.
        struct.error: it is shorter than 8 bytes.
    """
    require_file(file)
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > LARGEST_HEADER:
            raise ValueError(f"{file} is no safetensors file")
        header: dict[str, Any] = parse_json(stream.read(length).decode(), file)
    # a header has thousands of entries, each of which is checked more closely only if it is odd
    wrong = (
        mismatch(entry, _Entry, name)
        for name, entry in header.items()
        if name != METADATA and not _is_plain(entry)
    )
    if problem := next(filter(None, wrong), ""):
        raise ValueError(f"{file} is no safetensors file: {problem}")
    return header
