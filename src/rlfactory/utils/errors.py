"""Errors whose message tells the user what to change, and what is said of the user's own code.

A command prints the message of a `UserError` or an `OSError` without a traceback. Any other
exception is a defect of this package and keeps its traceback on the screen. Errors that a single
package raises and catches stand in that package and derive from `UserError`; those that several
packages raise stand here. Of an error in the user's own code its line is said first; tracebacks
are short.
"""

import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType

LONGEST = 300
"""Characters of an exception's message, and of a line of code, that are shown."""


class UserError(Exception):
    """An error that a user can act on; its message says what is wrong and what to type instead."""

    def _render_traceback_(self) -> list[str]:
        """The text that IPython shows: the message, and the line of the cell."""
        return short_traceback(self)


class UserCodeError(UserError, RuntimeError):
    """Code of the user's own that raised an exception, which is this one's cause."""


class ModelError(UserError, ValueError):
    """A model that can't be loaded or can't do what was configured; the message says what to type
    instead.
    """


class PromptError(UserError, ValueError):
    """Prompts that cannot be read; the message names the file, the line and what is wrong."""


class TrainingError(UserError, RuntimeError):
    """A run that must stop; the message says why and what to try."""


class RemoteError(Exception):
    """An exception in another process: its traceback, and the user's line that raised it, if one
    did.
    """

    def __init__(self, traceback: str, line: str | None) -> None:
        super().__init__(traceback)
        self.line = line


def explained(error: Exception, log: Path | None = None) -> Exception:
    """An error as its user is told it.

    Args:
        error: what ended a run or a command.
        log: the file that has the traceback.

    Returns:
        A `UserError` with the file in its message; if code of the user's raised it or one of its
        causes, with that line first. Another error that such code raised is the cause of a
        `UserCodeError`; any other is `error` itself.
    """
    line = next(filter(None, map(users_line, _causes(error))), None)
    is_told = isinstance(error, UserError)
    where = f"The traceback is in {log}" if log is not None else None
    own = str(error) if is_told and str(error) not in (line or "") else None
    message = "\n".join(filter(None, (line, own, where)))
    if is_told:
        error.args = (message,)
    if is_told or line is None:
        return error
    told = UserCodeError(message)
    told.__cause__ = error
    return told


def users_line(error: BaseException) -> str | None:
    """The user's line that raised an error, and below it the error; None where none of theirs did,
    or it is one that a message of ours tells.
    """
    if isinstance(error, RemoteError):
        return error.line
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename and not _is_library(error.filename):
        code = (error.text or "").strip()
        where = f"{_shown(error.filename)}, line {error.lineno}"
        return f"{where}: {code:.{LONGEST}}\n{kind}: {error.msg}"
    place = _users_place(error.__traceback__)
    if place is None or isinstance(error, UserError):
        return None
    text = " ".join(str(error).split())
    return f"{place}\n{kind}: {text:.{LONGEST}}" if text else f"{place}\n{kind}"


def short_traceback(error: BaseException) -> list[str]:
    """The text that a script or a notebook shows of an error that tells the user what to do: its
    message, and the line of the caller's that it came from.
    """
    lines = f"{type(error).__name__}: {error}".splitlines()
    place = _users_place(error.__traceback__)
    return lines if place is None else [*lines, f"called in {place}"]


def show_short_tracebacks() -> None:
    """Have uncaught `UserError`s of this process shown so, and all others as before."""
    former = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, UserError):
            print("\n".join(short_traceback(error)), file=sys.stderr)
        else:
            former(kind, error, traceback)

    sys.excepthook = hook


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _users_place(traceback: TracebackType | None) -> str | None:
    """File, line, function and code of the last frame that is the user's."""
    frames = [(f, n) for f, n in walk_tb(traceback) if _is_users(f)]
    if not frames:
        return None
    frame, number = frames[-1]
    file, name = frame.f_code.co_filename, frame.f_code.co_qualname
    if name.endswith(">"):  # a comprehension or a lambda: in which function
        name = name.rpartition(".<locals>")[0] or name
    code = linecache.getline(file, number, frame.f_globals).strip()
    return f"{_shown(file)}, line {number}, in {name}: {code:.{LONGEST}}".removesuffix(": ")


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    # typed at a prompt, or given to `python -c`
    is_main = frame.f_globals.get("__name__") == "__main__"
    return is_main if file.startswith("<") else not _is_library(file)


@cache
def _library_folders() -> tuple[str, ...]:
    places = sysconfig.get_paths()
    standard = (places[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return str(Path(__file__).parents[1]), *standard


def _is_library(file: str) -> bool:
    """Whether a file is this package's, Python's or that of an installed package."""
    parts = Path(file).parts
    installed = "site-packages" in parts or "dist-packages" in parts
    return installed or any(file.startswith(f"{folder}{os.sep}") for folder in _library_folders())


def _shown(file: str) -> str:
    """A path from the current folder if the file is below it; of a cell, which it is in."""
    if "ipykernel_" in file:
        return "this notebook"
    near = os.path.relpath(file) if os.path.isabs(file) else file
    return file if near.startswith(os.pardir) else near
