"""Files of plain values, read with limits: their size, their depth, and what they may hold.

A file of a run folder may be anything: damaged, edited by hand, or somebody else's. What can't be
used is a `FileError` that names the file, the line or key, and what to do; never a hang or a crash.
"""

import json
import os
import stat
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from rlfactory.utils.errors import UserError
from rlfactory.utils.types import describe, matches

LARGEST = 64 * 2**20
"""Bytes of the largest file of values that is read."""
DEEPEST, MOST = 64, 10**6
"""Levels of lists and mappings inside each other, and values of a file, aliases expanded."""
SHOWN = 60
"""Characters of a value in a message."""
PLAIN = (str, int, float, bool, type(None))
YAML_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What PyYAML raises, besides its own errors, where a tag does not fit its value."""


class FileError(UserError, ValueError):
    """A file that can't be used; the message names it, the place in it, and what to do."""

    def __init__(self, path: Path, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.told = f"{problem}; {remedy}" if remedy else problem
        super().__init__(f"{path}: {self.told}")


def require_file(
    path: Path, *, remedy: str = "", largest: int | None = None, may_be_link: bool = True
) -> None:
    """Raise as `read_bytes` where there is no file of at most `largest` bytes; reads nothing.

    `may_be_link=False` is for files that are written in place: a link may lead to any file.
    """
    if not may_be_link and path.is_symlink():
        raise FileError(path, "is a link, through which a run would write", remedy)
    try:
        about = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise FileError(path, "is a link to nothing", remedy) from None
        raise
    except OSError as error:
        raise FileError(path, f"can't be read ({error.strerror or error})", remedy) from error
    if not stat.S_ISREG(about.st_mode):
        raise FileError(path, "is no file", remedy)
    if largest is not None and about.st_size > largest:
        problem = f"has {about.st_size:,} bytes, and at most {largest:,} are read"
        raise FileError(path, problem, remedy)


def read_bytes(path: Path, *, remedy: str = "", largest: int = LARGEST) -> bytes:
    """The content of a file.

    Args:
        path: the file.
        remedy: what to do where it can't be used, the end of the message.
        largest: bytes that it may have.

    Raises:
        FileNotFoundError: there is nothing.
        FileError: it is no file (a folder, a pipe, a link to nothing), too large, or unreadable.
    """
    require_file(path, remedy=remedy, largest=largest)
    try:
        with path.open("rb") as file:
            return file.read(largest)
    except OSError as error:
        raise FileError(path, f"can't be read ({error.strerror or error})", remedy) from error


def read_text(path: Path, *, remedy: str = "", largest: int = LARGEST) -> str:
    """The text of a UTF-8 file; raises as `read_bytes`, and FileError where it is no UTF-8."""
    data = read_bytes(path, remedy=remedy, largest=largest)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(path, f"line {line} is not UTF-8", remedy) from error


def read_shown(path: Path, largest: int = 2**20) -> str:
    """The text of a file that is only shown: empty where it can't be read, and what is no UTF-8
    replaced.
    """
    try:
        return read_bytes(path, largest=largest).decode("utf-8", errors="replace")
    except (FileError, FileNotFoundError):
        return ""


def read_json(path: Path, kind: Any = Any, *, remedy: str = "") -> Any:
    """The value in a file of JSON; raises as `read_text`, and FileError unless it is a `kind`."""
    value = parse_json(read_text(path, remedy=remedy), path, remedy=remedy)
    require_kind(value, kind, path, remedy=remedy)
    return value


def parse_json(text: str, path: Path, *, line: int = 0, remedy: str = "") -> Any:
    """The value of a text of JSON, which is line `line` of the file `path`, or all of it if 0.

    Raises:
        FileError: it is no JSON, too deep, or holds text that can't be encoded.
    """
    try:
        value = json.loads(text)
        require_shallow(value)
    except json.JSONDecodeError as error:
        problem = f"line {line or error.lineno} is not JSON ({error.msg})"
        raise FileError(path, problem, remedy) from error
    except (ValueError, RecursionError) as error:
        where = f"line {line}" if line else "its content"
        raise FileError(path, f"{where} can't be read ({_reason(error)})", remedy) from error
    return value


def read_yaml(path: Path, *, remedy: str = "", texts_only: bool = False) -> Any:
    """The plain values in a file of YAML; with `texts_only`, `no` and `1` are texts too.

    Raises:
        FileNotFoundError: there is nothing.
        FileError: it can't be read, is no YAML, or has other values than texts, numbers, true,
            false, null, lists, and mappings whose keys are texts; more than `MOST` of them, with
            aliases expanded; deeper ones than `DEEPEST`, or one inside itself.
    """
    text = read_text(path, remedy=remedy)
    return parse_yaml(text, path, remedy=remedy, texts_only=texts_only)


def parse_yaml(text: str, path: Path, *, remedy: str = "", texts_only: bool = False) -> Any:
    """As `read_yaml`, of a text; `path` is for messages."""
    import yaml

    loader = yaml_loader()
    if texts_only:
        loader = type("Texts", (loader,), {"yaml_implicit_resolvers": {}})
    try:
        _require_flat_events(yaml.parse(text, loader))  # before it is composed, by recursion
        value = yaml.load(text, loader)
        require_shallow(value)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}" if mark else "its content"
        reason = error.problem or error.context or "no YAML"
        raise FileError(path, f"{where} can't be read ({reason})", remedy) from error
    except (yaml.YAMLError, *YAML_ERRORS) as error:
        raise FileError(path, f"is not plain YAML ({_reason(error)})", remedy) from error
    return value


def load_yaml(text: str) -> Any:
    """The values of YAML that ships or was typed, without the checks of `read_yaml`."""
    import yaml

    loader = yaml_loader()
    return yaml.load(text, loader)


@cache
def yaml_loader() -> Any:
    """PyYAML's safe loader in C where it is built, which is ten times as fast."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _require_flat_events(events: Iterator[Any]) -> None:
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > DEEPEST + 2:  # the document and the stream are two
            line = event.start_mark.line + 1
            raise ValueError(f"line {line} has more than {DEEPEST} levels inside each other")
        if getattr(event, "value", "") == "<<":  # merged ones may be as many as aliases
            raise ValueError(f"line {event.start_mark.line + 1} has the key <<")


def require_shallow(value: Any) -> None:
    """ValueError unless a value is plain, at most `DEEPEST` deep, and no more than `MOST` values.

    One that is inside itself is too deep.
    """
    level, count = [value], 1
    for _ in range(DEEPEST + 1):
        below: list[Any] = []
        for item in level:
            below += (values := _inside(item))
            count += len(values)
            if count > MOST:  # before aliases have filled the memory
                raise ValueError(f"it has more than {MOST:,} values")
        if not below:
            return
        level = below
    raise ValueError(f"it has more than {DEEPEST} levels inside each other")


def _inside(item: Any) -> Any:
    if type(item) is dict:
        for key in item:
            if not isinstance(key, str):
                raise ValueError(f"the key {_shown(key)} is no text")
            _require_encodable(key)
        return item.values()
    if type(item) is list:
        return item
    if type(item) not in PLAIN:
        raise ValueError(f"{_shown(item)} is a {type(item).__name__}, no plain value")
    if type(item) is str:
        _require_encodable(item)
    elif type(item) is int and abs(item) >= 2**64:
        raise ValueError("a whole number has more than 64 bits")
    return ()


def _require_encodable(text: str) -> None:
    if not text.isascii():
        text.encode("utf-8")  # half of a surrogate pair, an escape of JSON, can't be printed


def require_kind(value: Any, kind: Any, path: Path, *, remedy: str = "") -> None:
    """FileError unless a value is a `kind`: an annotation; a TypedDict, whose other keys may be
    anything; or what makes a dataclass, which has no others.
    """
    if problem := mismatch(value, kind):
        raise FileError(path, problem, remedy)


def mismatch(value: Any, kind: Any, at: str = "") -> str:
    """The first part of a value that is no `kind`, with its place; empty where it is one."""
    place, fault = next(mismatches(value, kind, at), ("", ""))
    return f"{place or 'its content'} {fault}" if fault else ""


def mismatches(value: Any, kind: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """All that is no `kind` in a value: each one's place, and what is wrong there."""
    origin, args = get_origin(kind), get_args(kind)
    options = [option for option in args if option is not type(None)]
    if is_typeddict(kind) or is_dataclass(kind):
        yield from _mismatched_keys(value, kind, at)
    elif origin in (Union, types.UnionType) and value is None and len(options) < len(args):
        return
    elif origin in (Union, types.UnionType) and len(options) == 1:
        yield from mismatches(value, options[0], at)
    elif origin is list and isinstance(value, list):
        for number, item in enumerate(value):
            yield from mismatches(item, args[0], _below(at, number))
    elif origin in (dict, Mapping) and isinstance(value, dict):
        for key, item in value.items():
            yield from mismatches(item, args[1], _below(at, key))
    elif not matches(value, kind):
        yield at, f"is {_shown(value)}, not {describe(kind)}"


def _mismatched_keys(value: Any, kind: Any, at: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, Mapping):
        yield at, f"is {_shown(value)}, not a mapping"
        return
    kinds = get_type_hints(kind)
    if is_dataclass(kind):
        needed = {f.name for f in fields(kind) if f.default is f.default_factory is MISSING}
        for key in sorted(value.keys() - kinds.keys()):
            yield _below(at, key), f"is no key of it; known are {', '.join(kinds)}"
    else:
        needed = kind.__required_keys__
    yield from ((_below(at, key), "is missing") for key in sorted(needed - value.keys()))
    for key in [key for key in kinds if key in value]:
        yield from mismatches(value[key], kinds[key], _below(at, key))


def _below(at: str, key: object) -> str:
    return f"{at}.{key}" if at else str(key)


def _shown(value: object) -> str:
    """A value in a message, short, and without control characters."""
    try:
        text = "a mapping" if isinstance(value, dict) else ascii(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        text = f"a large {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return f"more than {DEEPEST} levels inside each other"
    return os.linesep.join(str(error).splitlines()[:1])[:200] or type(error).__name__
