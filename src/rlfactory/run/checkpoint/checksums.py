"""Checksums of a checkpoint: MANIFEST.json with the size and SHA-256 of each file, verified."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from rlfactory.run.atomic_write import flush
from rlfactory.utils.data_files import FileError, parse_json, read_text, require_kind
from rlfactory.utils.version import installed_version

MANIFEST_FILE, FORMAT = "MANIFEST.json", 1
LIBRARIES = ("torch", "diffusers", "transformers", "rlfactory")


class _Entry(TypedDict):
    """The facts known of a file."""

    size: int
    sha256: str


class _Manifest(TypedDict):
    """The content of the manifest, besides entries about the checkpoint."""

    format: int
    versions: NotRequired[dict[str, str | None]]
    files: dict[str, _Entry]
    numerics: NotRequired[dict[str, Any]]
    digest: str


class DamagedError(RuntimeError):
    """A folder that differs from its manifest; the message names the first file that differs."""


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Flush every file of `folder` to the disk, then write the manifest and flush that.

    `about` holds further keys of the manifest, as plain values.
    """
    paths = {name: folder / name for name in _file_names(folder)}
    files = {n: {"size": p.stat().st_size, "sha256": checksum(p)} for n, p in paths.items()}
    for path in [*paths.values(), *(path for path in folder.rglob("*") if path.is_dir())]:
        flush(path)
    path = folder / MANIFEST_FILE
    path.write_bytes(_signed({"format": FORMAT, **about, "files": files}))
    flush(path)
    flush(folder)


def verify(folder: Path) -> dict[str, Any]:
    """Check every file of a folder against its manifest, and return the manifest.

    Reads all files. DamagedError if one is missing, differs, or is not in the manifest.
    """
    content = read_manifest(folder)
    if (written := content.get("format")) != FORMAT:
        raise DamagedError(f"its format is {written}, and this version reads {FORMAT}")
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise DamagedError(f"{path.relative_to(folder)} is not a regular file")
    expected, existing = content["files"], {*_file_names(folder)}
    if missing := expected.keys() - existing:
        raise DamagedError(f"{min(missing)} is missing")
    if extra := existing - expected.keys():
        raise DamagedError(f"{min(extra)} does not belong to it")
    # sizes of all first, as that is quick
    for name, entry in expected.items():
        if (size := (folder / name).stat().st_size) != entry["size"]:
            raise DamagedError(f"{name} has {size} bytes instead of {entry['size']}")
    for name, entry in expected.items():
        if checksum(folder / name) != entry["sha256"]:
            raise DamagedError(f"{name} has other content than was written")
    return content


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, without checking the files; DamagedError if it is damaged itself."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise DamagedError(f"it has no {MANIFEST_FILE}, so it was never finished")
    try:
        text = read_text(path)
        content: dict[str, Any] = parse_json(text, path)
        require_kind(content, _Manifest, path)
    except FileError as error:
        raise DamagedError(f"{MANIFEST_FILE} can't be read ({error.problem})") from error
    content.pop("digest")
    if _signed(content) != text.encode():
        raise DamagedError(f"{MANIFEST_FILE} has other content than was written")
    return content


def versions() -> dict[str, str | None]:
    """The installed versions of the libraries that results depend on; None if not installed."""
    return {name: installed_version(name) for name in LIBRARIES}


def digest(values: object) -> str:
    """A SHA-256 of plain values that does not depend on the order of keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _file_names(folder: Path) -> list[str]:
    """The files but the manifest itself, sorted, relative to the folder."""
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    return sorted(names - {MANIFEST_FILE})


def checksum(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _signed(content: Mapping[str, Any]) -> bytes:
    """The manifest's bytes. It holds a digest of itself, so equal content must give equal bytes."""
    signed = {**content, "digest": digest(content)}
    return (json.dumps(signed, indent=1) + "\n").encode()
