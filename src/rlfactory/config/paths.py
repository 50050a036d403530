"""Folders that are packaged with the code: `conf` and `sweeps`."""

import os
from collections.abc import Iterator
from pathlib import Path


def packaged_folder(name: str) -> Path:
    """`conf` or `sweeps`: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[1]
    inside = package / name
    return inside if inside.is_dir() else package.parents[1] / name


def yaml_files(folder: str) -> Iterator[os.DirEntry[str]]:
    """The YAML files in a folder and those below it; `Path.rglob` takes four times as long."""
    folders = [folder] if os.path.isdir(folder) else []
    for below in folders:
        for entry in os.scandir(below):
            if entry.is_dir():
                folders.append(entry.path)
            elif entry.name.endswith(".yaml"):
                yield entry


def packaged_files_state() -> tuple[tuple[str, int], ...]:
    """The path and modification time of each of our configuration files."""
    files = yaml_files(str(packaged_folder("conf")))
    return tuple(sorted((entry.path, entry.stat().st_mtime_ns) for entry in files))
