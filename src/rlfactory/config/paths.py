"""Folders that are packaged with the code: `conf` and `sweeps`."""

from pathlib import Path


def packaged_folder(name: str) -> Path:
    """`conf` or `sweeps`: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[1]
    inside = package / name
    return inside if inside.is_dir() else package.parents[1] / name
