"""The header of a safetensors file, read without torch."""

import json
import struct
from pathlib import Path
from typing import Any

LARGEST_HEADER = 100_000_000
"""Bytes, the limit of the format."""


def read_header(file: Path) -> dict[str, Any]:
    """Dtype and shape of each tensor by its name, and `__metadata__`: 8 bytes of length, then JSON.

    Raises:
        ValueError: it is no safetensors file.
        OSError: it can't be read.
        struct.error: it is shorter than 8 bytes.
    """
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > LARGEST_HEADER:
            raise ValueError(f"{file} is no safetensors file")
        header: dict[str, Any] = json.loads(stream.read(length))
    return header
