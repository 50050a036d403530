"""Where the models that ship lie."""

from pathlib import Path

ZOO_PREFIX = "zoo:"
_WEIGHTS = Path(__file__).parent / "weights"


def resolve(path: str, index: str) -> str:
    """The folder of a model that ships (`zoo:NAME`), a local folder, or a hub id as it is.

    A folder is a model's if it holds the file `index`; ValueError where it does not.
    """
    if path.startswith(ZOO_PREFIX):
        return str(zoo_path(path.removeprefix(ZOO_PREFIX)))
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / index).is_file():
            raise ValueError(f"{folder} holds no {index}, so no model")
        return str(folder)
    if path.startswith(("~", ".", "/")) or path.count("/") > 1:
        raise ValueError(f"there is no folder {folder}")
    return path


def zoo_path(name: str) -> Path:
    """The folder of a shipped model; an error that lists them where there is no such one."""
    folder = _WEIGHTS / name
    if not folder.is_dir():
        shipped = ", ".join(sorted(p.name for p in _WEIGHTS.iterdir() if p.is_dir()))
        raise ValueError(f"zoo:{name} does not ship; these do: {shipped}")
    return folder
