"""Text: status lines, formats of values, what others wrote, and notices of libraries."""

import io
import logging
import math
import os
import sys

import pytest
from rich.console import Console

from rlfactory.utils.console import (
    Guarded,
    can_rewrite_lines,
    clock,
    number,
    printable,
    shows_styles,
    silence_notices,
    silenced_notices,
    size,
)


@pytest.mark.parametrize(
    ("is_terminal", "variables", "shown"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_styles_are_for_terminals_that_show_them(is_terminal, variables, shown, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stdout", stream)
    assert shows_styles() is shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.000"),
        (0.5, "0.500"),
        (-1.2345, "-1.234"),
        (12.345, "12.35"),
        (123.45, "123.5"),
        (12345.0, "12345"),
        (4.1e-5, "4.1e-05"),
        (2.5e6, "2.5e+06"),
        (math.nan, "–"),
        (math.inf, "inf"),
    ],
)
def test_number(value: float, shown: str) -> None:
    assert number(value) == shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "kind", "expected"),
    [(Terminal(), "xterm", True), (Terminal(), "dumb", False), (io.StringIO(), "xterm", False)],
)
def test_lines_are_rewritten_on_terminals_that_can(
    stream: io.StringIO, kind: str, expected: bool
) -> None:
    colored = {"TERM": kind, "FORCE_COLOR": "1"}
    assert can_rewrite_lines(Console(file=stream, _environ=colored)) == expected


def test_signs_are_shown_on_request() -> None:
    assert number(0.1, sign=True) == "+0.100"
    assert number(-0.1, sign=True) == "-0.100"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0:00"),
        (59.6, "1:00"),
        (61, "1:01"),
        (3600, "1:00:00"),
        (-3, "0:00"),
        (math.nan, "-:--"),
    ],
)
def test_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**30, "1.0 GiB"), (2**41, "2.0 TiB")],
)
def test_size(count: float, shown: str) -> None:
    assert size(count) == shown


class Library:
    """The logging module of transformers or diffusers, which is imported."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.get_verbosity = lambda: self.level

    def set_verbosity_error(self) -> None:
        self.level = logging.ERROR

    def set_verbosity_warning(self) -> None:
        self.level = logging.WARNING


@pytest.fixture
def _no_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("transformers", "diffusers"):
        monkeypatch.setenv(f"{library.upper()}_VERBOSITY", "restored by monkeypatch")
        monkeypatch.delenv(f"{library.upper()}_VERBOSITY")
        monkeypatch.delitem(sys.modules, f"{library}.utils.logging", raising=False)


@pytest.mark.usefixtures("_no_levels")
def test_notices_are_silenced_and_shown_again_unless_the_user_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, chosen = Library(logging.WARNING), Library(logging.INFO)
    monkeypatch.setitem(sys.modules, "transformers.utils.logging", ours)
    monkeypatch.setitem(sys.modules, "diffusers.utils.logging", chosen)
    with silenced_notices():
        assert (ours.level, chosen.level) == (logging.ERROR, logging.INFO)
        assert os.environ["TRANSFORMERS_VERBOSITY"] == "error"
        with silenced_notices():
            pass
        assert ours.level == logging.ERROR
    assert (ours.level, chosen.level) == (logging.WARNING, logging.INFO)
    assert "TRANSFORMERS_VERBOSITY" not in os.environ
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")
    silence_notices()
    assert os.environ["TRANSFORMERS_VERBOSITY"] == "info"
    assert ours.level == logging.WARNING


def test_control_characters_are_shown_as_escapes() -> None:
    assert printable("a\x1b[31mred\x07\r\x9b\u202e") == r"a\x1b[31mred\x07\r\x9b\u202e"
    assert printable("two\nlines,\ta tab, \u00fc \u4e2d \U0001f600") == (
        "two\nlines,\ta tab, \u00fc \u4e2d \U0001f600"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;cm0gLXJm\x07", r"\x1b]52;c;cm0gLXJm\x07"),  # sets the clipboard
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[2J\x1b[H", r"\x1b[2J\x1b[H"),  # clears what was printed
        ("\x9b2J", r"\x9b2J"),
        ("\x1bPq\x1b\\", r"\x1bPq\x1b" + "\\"),
        ("a\x08b\x00", r"a\x08b\x00"),
        (
            "\x1b[1;31mred\x1b[0m\r\x1b[2K\x1b[1A\x1b[?25l",
            "\x1b[1;31mred\x1b[0m\r\x1b[2K\x1b[1A\x1b[?25l",
        ),
        ("größer\tund\n", "größer\tund\n"),
    ],
)
def test_a_terminal_shows_control_characters_that_are_not_ours(text: str, shown: str) -> None:
    terminal, pipe = Terminal(newline=""), io.StringIO(newline="")
    for stream in (terminal, pipe):
        assert Guarded(stream).write(text) == len(text)
    assert (terminal.getvalue(), pipe.getvalue()) == (shown, text)


def test_what_an_encoding_lacks_is_shown_as_escapes() -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, "latin-1")
    print("größer … \udcff", file=Guarded(stream), flush=True)
    assert written.getvalue() == b"gr\xf6\xdfer \\u2026 \\udcff\n"


def test_what_nobody_reads_is_dropped() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        for line in ("one", "x" * 100_000, "two"):
            print(line, file=Guarded(pipe), flush=True)
    print("no stream at all", file=Guarded(None), flush=True)
