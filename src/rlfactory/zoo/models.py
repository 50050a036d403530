"""Where the models that ship lie."""

from pathlib import Path

_WEIGHTS = Path(__file__).parent / "weights"


def zoo_path(name: str) -> Path:
    """The folder of a shipped model; an error that lists them where there is no such one."""
    folder = _WEIGHTS / name
    if not folder.is_dir():
        shipped = ", ".join(sorted(p.name for p in _WEIGHTS.iterdir() if p.is_dir()))
        raise ValueError(f"zoo:{name} does not ship; these do: {shipped}")
    return folder
