"""What can happen to the files of a folder while nobody looks."""

import random
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, random.Random], str]


def damaged(folder: Path, chance: random.Random) -> tuple[str, str]:
    """Change something in a folder, for certain; its kind, and all of it in words."""
    path = chance.choice(_files(folder))
    kind = chance.choice([*DAMAGES])
    said = DAMAGES[kind](path, chance)
    return kind, f"{path.relative_to(folder)} {said}"


def _flip(path: Path, chance: random.Random) -> str:
    data = bytearray(path.read_bytes())
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    data[place] ^= 1 << bit
    _replace(path, data)
    return f"has bit {bit} of byte {place} flipped"


def _zero(path: Path, chance: random.Random) -> str:
    """A block that was never written, as after a crash."""
    data = bytearray(path.read_bytes())
    begin, length = chance.randrange(len(data)), chance.randint(1, 4096)
    part = slice(begin, begin + length)
    if not any(data[part]):  # what is zero can't be zeroed
        return _flip(path, chance)
    data[part] = bytes(len(data[part]))
    _replace(path, data)
    return f"is zero in {length} bytes from {begin}"


def _cut(path: Path, chance: random.Random) -> str:
    data = path.read_bytes()
    length = chance.randrange(len(data))
    _replace(path, data[:length])
    return f"ends after {length} of {len(data)} bytes"


def _empty(path: Path, chance: random.Random) -> str:
    _replace(path, b"")
    return "is empty"


def _append(path: Path, chance: random.Random) -> str:
    more = chance.randbytes(chance.randint(1, 64))
    _replace(path, path.read_bytes() + more)
    return f"has {len(more)} bytes more"


def _remove(path: Path, chance: random.Random) -> str:
    path.unlink()
    return "is gone"


def _swap(path: Path, chance: random.Random) -> str:
    """With a file that has other content."""
    data = path.read_bytes()
    others = [p for p in _files(path.parent) if p != path and p.read_bytes() != data]
    if not others:
        return _flip(path, chance)
    other = chance.choice(others)
    theirs = other.read_bytes()
    _replace(path, theirs)
    _replace(other, data)
    return f"has changed places with {other.name}"


def _add(path: Path, chance: random.Random) -> str:
    """A file that nobody wrote."""
    path.with_name(f"{path.stem}_{chance.randrange(10**6)}.bin").write_bytes(chance.randbytes(16))
    return "has a stranger beside it"


def _clear(path: Path, chance: random.Random) -> str:
    for file in _files(path.parent):
        file.unlink()
    return "is gone, with all that is in its folder"


DAMAGES: dict[str, Damage] = {
    "bit flipped": _flip,
    "range zeroed": _zero,
    "cut short": _cut,
    "emptied": _empty,
    "bytes appended": _append,
    "file removed": _remove,
    "files swapped": _swap,
    "file added": _add,
    "folder cleared": _clear,
}


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _replace(path: Path, data: bytes | bytearray) -> None:
    """A new file, for the old one may be a link to another's."""
    path.unlink()
    path.write_bytes(data)
