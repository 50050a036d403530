"""What can be wrong with a file's bytes, whatever it holds."""

import os
import random
from collections.abc import Mapping
from pathlib import Path

from faulty.harm.places import Change, write


def _empty(path: Path, chance: random.Random, size: int) -> None:
    write(path, b"")


def _cut(path: Path, chance: random.Random, size: int) -> None:
    data = path.read_bytes()
    write(path, data[: chance.randrange(len(data) + 1)])


def _flip(path: Path, chance: random.Random, size: int) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    for _ in range(min(size, 8)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    write(path, bytes(data))


def _zero(path: Path, chance: random.Random, size: int) -> None:
    data = bytearray(path.read_bytes())
    begin = chance.randrange(len(data) + 1)
    part = slice(begin, begin + chance.randint(1, 4096))
    data[part] = bytes(len(data[part]))
    write(path, bytes(data))


def _append(path: Path, chance: random.Random, size: int) -> None:
    write(path, path.read_bytes() + chance.randbytes(size))


def _line(path: Path, chance: random.Random, size: int) -> None:
    """A line of text in between."""
    lines = path.read_bytes().split(b"\n")
    line = chance.choice([b"x" * size, b"{", b"[]", b"null", b"- ", b"\t:", b"\xff\xfe", b"1"])
    lines.insert(chance.randrange(len(lines) + 1), line)
    write(path, b"\n".join(lines))


def _latin(path: Path, chance: random.Random, size: int) -> None:
    data = path.read_bytes()
    place = chance.randrange(len(data) + 1)
    write(path, data[:place] + b"\xe9\xff" + data[place:])


def _recoded(path: Path, chance: random.Random, size: int) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    write(path, text.encode(chance.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7"])))


def _returns(path: Path, chance: random.Random, size: int) -> None:
    write(
        path,
        path.read_bytes().replace(b"\n", chance.choice([b"\r\n", b"\r", b"\x00", b"\x1b[2J\n"])),
    )


def _large(path: Path, chance: random.Random, size: int) -> None:
    """Without taking as much of the disk."""
    write(path, path.read_bytes())
    os.truncate(path, path.stat().st_size + size * 2**20)


def _doubled(path: Path, chance: random.Random, size: int) -> None:
    write(path, path.read_bytes() * 2)


CONTENTS: Mapping[str, Change] = {
    "empty": _empty,
    "cut short": _cut,
    "flipped bits": _flip,
    "zeros": _zero,
    "more bytes": _append,
    "a strange line": _line,
    "no UTF-8": _latin,
    "another encoding": _recoded,
    "other line ends": _returns,
    "megabytes of zeros": _large,
    "all of it twice": _doubled,
}
