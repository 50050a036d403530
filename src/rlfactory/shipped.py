"""Where the files that come with the package are."""

from pathlib import Path


def shipped_folder(name: str) -> Path:
    """`conf` or `sweeps`: inside the installed package, or at the top of a checkout."""
    inside = Path(__file__).parent / name
    return inside if inside.is_dir() else Path(__file__).parents[2] / name
