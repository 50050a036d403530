"""What a folder of files must hold, to the last bit: sizes and hashes, written after all else."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlfactory.run.atomic import flush

MANIFEST_FILE, FORMAT = "MANIFEST.json", 1
LIBRARIES = ("torch", "diffusers", "transformers", "rlfactory")


class DamagedError(RuntimeError):
    """A folder that isn't what its manifest says; the message names the first file that differs."""


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Flush every file of `folder` to the disk, then write what they are, and flush that.

    `about` is what else to note, as plain values.
    """
    files = {name: _entry(folder / name) for name in _names(folder)}
    for place in [folder / name for name in files] + _folders(folder):
        flush(place)
    path = folder / MANIFEST_FILE
    path.write_bytes(_signed({"format": FORMAT, **about, "files": files}))
    flush(path)
    flush(folder)


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of a folder that is what it says; else DamagedError.

    Every file is read. A file that the manifest doesn't name counts as damage as well.
    """
    content = read_manifest(folder)
    if content.get("format") != FORMAT:
        raise DamagedError(
            f"its format is {content.get('format')}, and this version reads {FORMAT}"
        )
    for place in folder.rglob("*"):
        if place.is_symlink() or not (place.is_file() or place.is_dir()):
            raise DamagedError(f"{place.relative_to(folder)} is no file of its own")
    named, there = content["files"], {*_names(folder)}
    if missing := named.keys() - there:
        raise DamagedError(f"{min(missing)} is missing")
    if extra := there - named.keys():
        raise DamagedError(f"{min(extra)} does not belong to it")
    for name, entry in named.items():
        if (size := (folder / name).stat().st_size) != entry["size"]:
            raise DamagedError(f"{name} has {size} bytes instead of {entry['size']}")
    for name, entry in named.items():
        if _hash(folder / name) != entry["sha256"]:
            raise DamagedError(f"{name} has other content than was written")
    return content


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a manifest says, whatever the files are like; DamagedError if it is damaged itself."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise DamagedError(f"it has no {MANIFEST_FILE}, so it was never finished")
    data = path.read_bytes()
    try:
        content = json.loads(data)
        content.pop("digest")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise DamagedError(f"{MANIFEST_FILE} can't be read ({error})") from error
    if _signed(content) != data:
        raise DamagedError(f"{MANIFEST_FILE} has other content than was written")
    return dict(content)


def versions() -> dict[str, str | None]:
    """Of the libraries whose change may change results."""
    return {name: _version(name) for name in LIBRARIES}


def digest(values: object) -> str:
    """The same for equal plain values, in whatever order their keys stand."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@cache  # each takes milliseconds, and every checkpoint names them
def _version(name: str) -> str | None:
    if name == "rlfactory":
        from rlfactory import __version__

        return __version__
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _names(folder: Path) -> Iterator[str]:
    """All files, but the manifest itself, in a fixed order."""
    found = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    return iter(sorted(name for name in found if name != MANIFEST_FILE))


def _folders(folder: Path) -> list[Path]:
    return [place for place in folder.rglob("*") if place.is_dir()]


def _entry(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": _hash(path)}


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _signed(content: Mapping[str, Any]) -> bytes:
    """The manifest's bytes; its own hash is in it, so there is one way to write each content."""
    whole = {**content, "digest": digest(content)}
    return (json.dumps(whole, indent=1) + "\n").encode()
