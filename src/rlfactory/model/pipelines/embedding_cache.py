"""A cache of text embeddings, in memory and on disk, shared by all runs that use its folder."""

import hashlib
import json
import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rlfactory.prompts.ops.pictured import identity as identity_of
from rlfactory.utils.errors import ModelError

TextEmbeddings = Mapping[str, Tensor]
"""What the text encoders give, by name: `sequence` `[B, L, D]`, and with most `pooled` `[B, P]`.
Within the cache, the rows of one prompt, without B.
"""

LENGTHS = "lengths"
"""The name of the embeddings' numbers of tokens, `[B]`, which stay on the CPU."""

log = logging.getLogger(__name__)

# Bytes held in memory. A prompt of FLUX has 4 MB in bfloat16: about a thousand without a disk.
MEMORY_WITHOUT_DISK = 4 * 2**30
MEMORY_WITH_DISK = 2**28
ABOUT_FILE = "about.json"
_SAMPLES, _SAMPLE_BYTES = 64, 4096  # read from a large file of weights


@dataclass(frozen=True)
class PromptCache:
    """Where embeddings are kept: in `folder`, or with None in memory only.

    `prompts` are the distinct prompts of a run; empty if its source is endless. If the folder has
    all of them, the text encoders are not loaded. This process is number `rank` of `world_size`
    that encode them.
    """

    folder: Path | None = None
    prompts: tuple[str, ...] = ()
    rank: int = 0
    world_size: int = 1

    def open(self, identity: Mapping[str, object]) -> "EmbeddingStore":
        """The store of one model, by all else that embeddings depend on; ModelError without any."""
        if self.folder is None:
            return EmbeddingStore(None, MEMORY_WITHOUT_DISK)
        key = _digest(json.dumps(identity, sort_keys=True, default=str).encode())
        folder = self.folder.expanduser() / key
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / ABOUT_FILE).exists():
                about = json.dumps(identity, indent=1, default=str) + "\n"
                _replace(folder / ABOUT_FILE, lambda new: new.write_text(about, encoding="utf-8"))
        except OSError as error:
            raise _unusable(self.folder, error) from error
        return EmbeddingStore(folder, MEMORY_WITH_DISK)


IN_MEMORY = PromptCache()


class EmbeddingStore:
    """Embeddings by prompt, on the CPU: all of them in `folder`, an LRU cache of them in memory.

    A prompt's file is named by a digest of its full text, and of its picture if it has one, and
    holds the text itself.
    """

    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self._rows: OrderedDict[str, TextEmbeddings] = OrderedDict()
        self._bytes = 0

    def holds(self, prompts: Iterable[str]) -> bool:
        """Whether all prompts are stored; files are not checked for damage."""
        return all(self._is_stored(prompt) for prompt in prompts)

    def _is_stored(self, prompt: str) -> bool:
        path = self._path(prompt)
        return prompt in self._rows if path is None else path.is_file()

    def missing(self, prompts: Sequence[str]) -> list[str]:
        """Those of `prompts` that are not stored; the others are evicted last."""
        for prompt in prompts:
            if prompt in self._rows:
                self._rows.move_to_end(prompt)
        return [prompt for prompt in prompts if not self._is_stored(prompt)]

    def get(self, prompt: str) -> TextEmbeddings | None:
        """The rows of a prompt; None if they are not stored."""
        if prompt in self._rows:
            self._rows.move_to_end(prompt)
            return self._rows[prompt]
        path = self._path(prompt)
        rows = None if path is None else _read(path, identity_of(prompt))
        if rows is not None:
            self._remember(prompt, rows)
        return rows

    def put(self, prompt: str, rows: TextEmbeddings) -> None:
        """Store the rows of a prompt. If two processes write the same one, the last file stays."""
        path = self._path(prompt)
        if path is not None:
            try:
                _replace(
                    path, lambda new: save_file(dict(rows), new, {"prompt": identity_of(prompt)})
                )
            except (OSError, SafetensorError) as error:
                raise _unusable(path.parent, error) from error
        self._remember(prompt, rows)

    def _remember(self, prompt: str, rows: TextEmbeddings) -> None:
        self._evict(prompt)
        self._rows[prompt] = rows
        self._bytes += _size(rows)
        while self._bytes > self.max_bytes and self._rows:
            self._evict(next(iter(self._rows)))

    def _evict(self, prompt: str) -> None:
        if prompt in self._rows:
            self._bytes -= _size(self._rows.pop(prompt))

    def _path(self, prompt: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{_digest(identity_of(prompt).encode())}.safetensors"


def identity_of_files(folder: Path, parts: Iterable[str]) -> str:
    """A digest of the files in some subfolders of a model folder.

    Small files are hashed in full. Of weight files, which may have gigabytes, it hashes size,
    modification time and samples all over the file: a change of the weights changes one of them.
    """
    digest = hashlib.sha256()
    for part in sorted(parts):
        for path in sorted(p for p in (folder / part).rglob("*") if p.is_file()):
            digest.update(f"{path.relative_to(folder)}\n".encode())
            digest.update(_sampled(path) if path.stat().st_size > 2**24 else path.read_bytes())
    return digest.hexdigest()


def _sampled(path: Path) -> bytes:
    stat = path.stat()
    with path.open("rb") as file:
        pieces = [f"{stat.st_size} {stat.st_mtime_ns}".encode()]
        for i in range(_SAMPLES):
            file.seek(i * (stat.st_size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            pieces.append(file.read(_SAMPLE_BYTES))
    return b"".join(pieces)


def _read(path: Path, prompt: str) -> TextEmbeddings | None:
    """The rows in a file; None if it does not exist or is damaged."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("prompt") != prompt:
                raise ValueError("it holds another prompt")
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        log.warning("%s is damaged (%s); its prompt is encoded again", path, error)
        return None


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically: into a temporary file beside it, then renamed."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    new = Path(name)
    try:
        write(new)
        new.chmod(0o644)  # mkstemp's files are private, and the folder is shared
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def _unusable(folder: Path, error: Exception) -> ModelError:
    reason = getattr(error, "strerror", None) or error
    return ModelError(
        f"prompt_cache: {folder} can't be written ({reason}); type prompt_cache=FOLDER with one"
        " that can, or prompt_cache=null"
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _size(rows: TextEmbeddings) -> int:
    return sum(t.numel() * t.element_size() for t in rows.values())
