"""Embeddings of prompts: each prompt goes through the text encoders once, in all runs together."""

import hashlib
import json
import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rlfactory.model.hub import ModelError

Text = Mapping[str, Tensor]

log = logging.getLogger(__name__)

# A prompt of FLUX takes 4 MB in bfloat16, so about a thousand of them where there is no disk.
ROOM_ALONE = 4 * 2**30  # bytes
ROOM_BESIDE_DISK = 2**28  # bytes
ABOUT_FILE = "about.json"
_SAMPLES, _SAMPLE = 64, 4096  # places in a file of weights, and bytes at each


@dataclass(frozen=True)
class PromptCache:
    """Where embeddings are kept: in `folder`, and without one in memory alone.

    `prompts` are all that a run will ask for, where that is known, each of them once: if they are
    all in the folder, the text encoders need not be loaded.
    """

    folder: Path | None = None
    prompts: tuple[str, ...] = ()

    def open(self, identity: Mapping[str, object]) -> "Embeddings":
        """Those of one model: `identity` is all that an embedding depends on, but the prompt."""
        if self.folder is None:
            return Embeddings(None, ROOM_ALONE)
        key = _digest(json.dumps(identity, sort_keys=True, default=str).encode())
        folder = self.folder.expanduser() / key
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / ABOUT_FILE).exists():
                about = json.dumps(identity, indent=1, default=str) + "\n"
                _replace(folder / ABOUT_FILE, lambda new: new.write_text(about, encoding="utf-8"))
        except OSError as error:
            raise _unusable(self.folder, error) from error
        return Embeddings(folder, ROOM_BESIDE_DISK)


IN_MEMORY = PromptCache()


class Embeddings:
    """Rows by prompt, on the CPU: at most `room` bytes in memory, all of them in `folder`.

    The file of a prompt is named by a digest of all of its text and holds the text itself.
    """

    def __init__(self, folder: Path | None, room: int) -> None:
        self.folder, self.room = folder, room
        self._rows: OrderedDict[str, Text] = OrderedDict()
        self._bytes = 0

    def holds(self, prompts: Iterable[str]) -> bool:
        """Whether each of the prompts is kept; a file that is there counts as whole."""
        return all(self._is_kept(prompt) for prompt in prompts)

    def _is_kept(self, prompt: str) -> bool:
        place = self._place(prompt)
        return prompt in self._rows if place is None else place.is_file()

    def get(self, prompt: str) -> Text | None:
        """The rows of a prompt, None where they are not kept."""
        if prompt in self._rows:
            self._rows.move_to_end(prompt)
            return self._rows[prompt]
        place = self._place(prompt)
        found = None if place is None else _read(place, prompt)
        if found is not None:
            self._remember(prompt, found)
        return found

    def put(self, prompt: str, rows: Text) -> None:
        """Keep the rows of a prompt. Of two processes that write the same, the last one stays."""
        place = self._place(prompt)
        if place is not None:
            try:
                _replace(place, lambda new: save_file(dict(rows), new, {"prompt": prompt}))
            except (OSError, SafetensorError) as error:
                raise _unusable(place.parent, error) from error
        self._remember(prompt, rows)

    def _remember(self, prompt: str, rows: Text) -> None:
        self._forget(prompt)
        self._rows[prompt] = rows
        self._bytes += _size(rows)
        while self._bytes > self.room and self._rows:
            self._forget(next(iter(self._rows)))

    def _forget(self, prompt: str) -> None:
        if prompt in self._rows:
            self._bytes -= _size(self._rows.pop(prompt))

    def _place(self, prompt: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{_digest(prompt.encode())}.safetensors"


def identity_of_files(folder: Path, parts: Iterable[str]) -> str:
    """A digest of what lies in some of a folder's own folders.

    Small files count with all that they hold. Of files of weights, which may have gigabytes, count
    size, time of change and what stands at places all over them: whoever writes one changes one of
    the three.
    """
    found = hashlib.sha256()
    for part in sorted(parts):
        for path in sorted(p for p in (folder / part).rglob("*") if p.is_file()):
            found.update(f"{path.relative_to(folder)}\n".encode())
            found.update(_sampled(path) if path.stat().st_size > 2**24 else path.read_bytes())
    return found.hexdigest()


def _sampled(path: Path) -> bytes:
    about = path.stat()
    with path.open("rb") as file:
        pieces = [f"{about.st_size} {about.st_mtime_ns}".encode()]
        for i in range(_SAMPLES):
            file.seek(i * (about.st_size - _SAMPLE) // (_SAMPLES - 1))
            pieces.append(file.read(_SAMPLE))
    return b"".join(pieces)


def _read(place: Path, prompt: str) -> Text | None:
    """The rows in a file; None where there is none, or one that is damaged."""
    if not place.is_file():
        return None
    try:
        with safe_open(place, framework="pt") as file:
            if (file.metadata() or {}).get("prompt") != prompt:
                raise ValueError("it is of another prompt")
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        log.warning("%s is damaged (%s); its prompt is encoded anew", place, error)
        return None


def _replace(place: Path, write: Callable[[Path], object]) -> None:
    """Have a file written beside its place and put there whole."""
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    os.close(handle)
    new = Path(name)
    try:
        write(new)
        new.chmod(0o644)
        new.replace(place)
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


def _size(rows: Text) -> int:
    return sum(t.numel() * t.element_size() for t in rows.values())
