import pytest

from rlfactory.report.table import Words
from rlfactory.report.terminal import Terminal

LONG = "a row with a name that goes on for a while"
WORDS = Words(["row", *"abcdefgh", "status"], [[LONG, *["0.123 ± 0.456"] * 8, "[bold]3 done"]])


def test_numbers_are_never_cut_and_marks_are_no_marks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal = Terminal()
    before = terminal.console.width
    terminal.table(WORDS, "a title")
    out = capsys.readouterr().out
    assert out.count("0.123 ± 0.456") == 8
    assert "[bold]3 done" in out
    assert "a title" in out
    assert "…" not in out
    assert terminal.console.width == before == 40


def test_no_table_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().table(None, "a title")
    assert capsys.readouterr().out == ""


def test_a_long_note_is_one_line_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().notes(["word " * 100])
    assert capsys.readouterr().out.strip().count("\n") == 0
