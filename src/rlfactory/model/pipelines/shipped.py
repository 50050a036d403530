"""The folders of the models that ship. Weights that several of them have in common ship once.

Torch-free, for checks of a configuration."""

import atexit
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rlfactory.model.pipelines.packaged import PACKAGED, cache_folder, new_folder, packaged_folder
from rlfactory.utils.version import __version__

WEIGHTS = Path(__file__).parents[1] / "zoo" / "weights"
SHARED = "shared.json"
"""In a model's folder: which of its files are another model's, `{"vae/a": "tiny_sd3/vae/a"}`."""


def zoo_path(name: str) -> Path:
    """The folder of a model that ships here or in another package; ValueError, with a list of all,
    if it does not ship, or how to install the package.

    It is complete: plain diffusers and transformers load it, pipelines in float32 unless a dtype is
    asked for.
    """
    if name in PACKAGED:
        return packaged_folder(name)
    folder = WEIGHTS / name
    if not folder.is_dir():
        names = [*PACKAGED, *(p.name for p in WEIGHTS.iterdir() if p.is_dir())]
        shipped = ", ".join(sorted(names))
        raise ValueError(f"zoo:{name} does not ship; these do: {shipped}")
    return _complete(folder) if (folder / SHARED).is_file() else folder


def _complete(folder: Path) -> Path:
    """A folder of links to a model's own files and to those that it shares."""
    files = {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}
    del files[SHARED]
    shared = json.loads((folder / SHARED).read_text(encoding="utf-8"))
    files |= {name: WEIGHTS / source for name, source in shared.items()}
    try:
        return _linked(cache_folder() / _digest(files) / folder.name, files)
    except OSError:  # no folder for caches, or one that can't be written to
        return _linked(_temporary() / folder.name, files)


def _linked(folder: Path, files: Mapping[str, Path]) -> Path:
    """`folder` with links to `files`, made at once or not at all."""
    if folder.is_dir():
        return folder
    with new_folder(folder) as partial:
        for name, source in files.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            _link(partial / name, source)
    return folder


def _link(link: Path, source: Path) -> None:
    try:
        link.symlink_to(source)
    except OSError:  # a file system without links
        shutil.copyfile(source, link)


def _digest(files: Mapping[str, Path]) -> str:
    """Of where the files lie and of the version, so an old folder of links is never used."""
    said = [__version__, *(f"{name} {source}" for name, source in sorted(files.items()))]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


@cache
def _temporary() -> Path:
    """A folder of this process."""
    folder = tempfile.mkdtemp(prefix="rlfactory-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
