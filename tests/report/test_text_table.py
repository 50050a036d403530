"""Tables as terminal, Markdown and LaTeX show them."""

import pytest

from rlfactory.report.text_table import (
    Section,
    Terminal,
    TextTable,
    latex,
    latex_table,
    markdown_sections,
    titled,
)
from rlfactory.utils.text import plain

LONG = "a row with a name that goes on for a while"
WORDS = TextTable(["row", *"abcdefgh", "status"], [[LONG, *["0.123 ± 0.456"] * 8, "[bold]3 done"]])


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


def test_a_long_note_is_one_line_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().notes(["word " * 100])
    assert capsys.readouterr().out.strip().count("\n") == 0


def test_plain_text_is_one_line_without_marks() -> None:
    assert plain("a_b *c*\n| `d` <e> \\") == r"a\_b \*c\* \| \`d\` \<e> " + "\\\\"


def test_every_line_has_as_many_cells_as_columns() -> None:
    lines = latex_table(TextTable(["row", "x"], [["a & b", "1"], ["c", "2"]]))
    rows = [line for line in lines if line.endswith(r"\\")]
    assert [row.replace(r"\&", "").count("&") for row in rows] == [1, 1, 1]


def test_text_is_printed_as_it_is() -> None:
    assert latex("50% of a_b\n{x} ~ ^ \\") == (
        r"50\% of a\_b \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )


@pytest.mark.parametrize(
    "text", [r"\input{/etc/passwd}", r"\write18{id}", "$x$ %", "a\n\\end{document}"]
)
def test_a_text_is_no_command_of_latex(text: str) -> None:
    shown = latex(text)
    known = (r"\textbackslash{}", r"\{", r"\}", r"\$", r"\%", r"\_", r"\&", r"\#")
    for command in known:
        shown = shown.replace(command, "")
    assert not {*"\\${}%"} & {*shown}


def test_sections_have_headings_and_what_is_folded_folds() -> None:
    table = TextTable(["row", "x"], [["a_b", "1"]], strong=frozenset({(0, 1)}))
    lines = markdown_sections([Section("One", table, "Said."), Section("Two", table, folded=True)])
    text = "\n".join(lines)
    assert "## One\n\nSaid.\n\n| row | x |\n|---|---:|\n| a\\_b | **1** |" in text
    assert "<details><summary>Two</summary>\n\n| row" in text
    assert lines[-1] == "</details>"
    assert titled({"a": None, "b": table}) == [Section("b", table)]


def test_what_stands_out_is_bold_and_marks_in_it_are_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    Terminal().table(TextTable(["r"], [["[red]a"], ["b"]], strong=frozenset({(0, 0)})))
    assert "\x1b[1m[red]a\x1b[0m" in capsys.readouterr().out
