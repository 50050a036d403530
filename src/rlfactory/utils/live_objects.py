"""Live objects: what a Python caller hands over in memory, in the place of a path or import path.

A configuration holds text, so such an object has a name while it is in use, and the configuration
says `object:NAME`. The text alone means nothing in another process: `describe` is what a run folder
keeps of the object.
"""

import inspect
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, TypeGuard

from rlfactory.utils.dotted_keys import texts
from rlfactory.utils.errors import UserError

PREFIX = "object:"
PARALLEL = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_objects: dict[str, Any] = {}
_lock = RLock()


class LiveObjectError(UserError, LookupError):
    """A configuration that names an object which this process does not have."""


@contextmanager
def live_objects(objects: Mapping[str, Any]) -> Iterator[None]:
    """Inside the block, `object:NAME` stands for `objects[NAME]`.

    Other threads wait for the end of the block: names, log files and what loads models belong to
    the process, and two runs at once would have each other's.
    """
    with _lock:
        former = dict(_objects)
        _objects.update(objects)
        try:
            yield
        finally:
            _objects.clear()
            _objects.update(former)


def is_reference(value: object) -> TypeGuard[str]:
    """Whether a value of a configuration stands for a live object."""
    return isinstance(value, str) and value.startswith(PREFIX)


def references_in(value: object) -> list[str]:
    """The names of all live objects that a configuration, or a part of one, refers to."""
    found = (text.removeprefix(PREFIX) for _, text in texts(value) if is_reference(text))
    return list(dict.fromkeys(found))


def resolve(reference: str) -> Any:
    """The object of a reference; LiveObjectError where this process has none of that name."""
    name = reference.removeprefix(PREFIX)
    if name not in _objects:
        raise LiveObjectError(
            f"{reference} is an object of the Python process that began this run; resume it there,"
            f" or hand over another one: rlfactory.load_run(RUN).resume({name}=...)"
        )
    return _objects[name]


def describe(value: object) -> str:
    """The description of a live object: its type and name, where it was loaded from, its settings
    if they are plain values, and the file and line of its definition.
    """
    if isinstance(value, tuple):
        return ", ".join(map(describe, value))
    named: Any = value if hasattr(value, "__qualname__") else type(value)
    text = f"{named.__module__}.{named.__qualname__}"
    if named is not value:
        text += _contents(value)
    try:
        file, line = inspect.getsourcefile(named), inspect.getsourcelines(named)[1]
    except (OSError, TypeError):  # a built-in, or typed at the prompt
        return text
    # a cell's code is in a file that only its kernel knows
    return f"{text} ({f'{file}:{line}' if file and Path(file).is_file() else 'in a notebook'})"


def _contents(value: object) -> str:
    """Contents that distinguish an instance from others of its type."""
    if path := getattr(value, "name_or_path", None):
        return f" {path}"
    settings = getattr(value, "__dict__", {})
    if settings and all(isinstance(v, bool | int | float | str | None) for v in settings.values()):
        return f"({', '.join(f'{name}={v!r}' for name, v in settings.items())})"
    digest = f", SHA-256 {value.digest}" if hasattr(value, "digest") else ""
    return f" of {len(value)}{digest}" if isinstance(value, Sized) else digest


def unwrapped(model: Any) -> Any:
    """The model inside the wrappers of torch.compile and of data parallelism."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in PARALLEL:
            inner = model.module
        if inner is None:
            return model
        model = inner
