"""Text for the terminal: messages beside a command's own output, and formats of values."""

import errno
import logging
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console


CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL = re.compile(
    r"(\x1b\[(?:[0-9;]*m|[0-9]*[AK]|\?25[lh]))|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


def printable(text: str) -> str:
    """A text as a terminal may have it: its control characters, which would move the cursor, change
    colours or the direction of writing, as escapes that are read.
    """
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def print_status(message: str) -> None:
    """Print a line to standard error."""
    from rich.console import Console  # imported late: commands that print nothing start faster

    Console(stderr=True).print(printable(message), markup=False, highlight=False, soft_wrap=True)


def print_error(message: str) -> None:
    """Print an error message to standard error."""
    print_status(f"error: {message}")


class Guarded:
    """A stream of this process that shows what can be shown, and fails for nothing of that kind.

    Characters that its encoding lacks become escapes. Once its reader has gone (`| head`, a closed
    terminal), what is written is dropped: a run trains on without anybody who watches. A terminal
    gets control characters as escapes, but for colours and what rewrites a line of progress: a
    prompt, a response or a name of a run that somebody sent could otherwise set the clipboard or
    the title, or hide what was printed.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # a service may have none
        self._stream = stream or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        self._is_terminal = self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, with escapes such as `\\x1b` and `\\xe4`."""
        encoding = self._stream.encoding or "utf-8"
        shown = text.encode(encoding, "backslashreplace").decode(encoding)
        if self._is_terminal:
            shown = _CONTROL.sub(lambda found: found[1] or ascii(found[0])[1:-1], shown)
        with self._dropping():
            self._stream.write(shown)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        with self._dropping():
            self._stream.flush()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            # what is buffered goes there too, now and when Python closes the stream
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def guard_output() -> None:
    """Let standard output and error be `Guarded`."""
    for name in ("stdout", "stderr"):
        if not isinstance(stream := getattr(sys, name), Guarded):
            setattr(sys, name, Guarded(stream))


@contextmanager
def silenced_notices() -> Iterator[None]:
    """`silence_notices` within the block, for a process that is the user's."""
    silenced = silence_notices()
    try:
        yield
    finally:
        for library in silenced:
            os.environ.pop(_variable(library), None)
            module = sys.modules.get(f"{library}.utils.logging")
            if module is not None and module.get_verbosity() == logging.ERROR:
                module.set_verbosity_warning()


def silence_notices() -> list[str]:
    """Silence the notices of transformers and diffusers, of optional packages and the like, unless
    the user has chosen what is shown: by an environment variable, or in a library that is imported.
    Returns the libraries that were not silent.
    """
    silenced = []
    for library in ("transformers", "diffusers"):
        module = sys.modules.get(f"{library}.utils.logging")
        is_default = module is None or module.get_verbosity() == logging.WARNING
        if _variable(library) in os.environ or not is_default:
            continue
        os.environ[_variable(library)] = "error"  # read when the library is imported
        if module is not None:
            module.set_verbosity_error()
        silenced.append(library)
    return silenced


def _variable(library: str) -> str:
    return f"{library.upper()}_VERBOSITY"


def can_rewrite_lines(console: "Console") -> bool:
    """Whether a console is a terminal that can show live lines.

    rich may be told to treat a pipe as a terminal (forced colors), so the stream is asked as well.
    """
    return console.file.isatty() and console.is_terminal and not console.is_dumb_terminal


def shows_styles() -> bool:
    """Whether standard output is a terminal that shows bold and dim text, and nobody asked for
    plain text (`NO_COLOR`).
    """
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not is_plain


def number(value: float, *, sign: bool = False) -> str:
    """A score or a loss in about three significant digits; a dash for NaN."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else str(value)
    size = abs(value)
    plus = "+" if sign else ""
    if size != 0 and (size < 1e-3 or size >= 1e5):
        return format(value, f"{plus}.1e")
    decimals = 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return format(value, f"{plus}.{decimals}f")


def clock(seconds: float) -> str:
    """A duration as `m:ss`, or `h:mm:ss` from an hour on; `-:--` while it is unknown."""
    if not math.isfinite(seconds):
        return "-:--"
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def size(count: float) -> str:
    """A number of bytes in the largest unit of 1024 that leaves at least 1."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def notebook_shell() -> Any:
    """IPython's shell where it belongs to a kernel (Jupyter, Colab, VS Code); else None."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if hasattr(shell, "kernel") else None


def show_html(html: str) -> Any:
    """Show HTML below the cell that runs; returns a handle for `replace_html`."""
    output: Any = import_module("IPython.display")
    return output.display(output.HTML(html), display_id=True)


def replace_html(handle: Any, html: str) -> None:
    """Replace what `show_html` has shown."""
    output: Any = import_module("IPython.display")
    handle.update(output.HTML(html))
