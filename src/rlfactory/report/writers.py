"""Writers of a report: terminal, Markdown, CSV and LaTeX; the HTML page has its own package."""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from textwrap import fill

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from rlfactory.report.claims import NOTE, claim_table, counts_text
from rlfactory.report.leaderboard import NOTE as LEADERBOARD_NOTE
from rlfactory.report.leaderboard import leaderboard_table
from rlfactory.report.report import ClaimResult, Report
from rlfactory.report.sample_pairs import Sample
from rlfactory.report.table import (
    NONE,
    TextTable,
    category_tables,
    comparison_table,
    difference_table,
    main_table,
    spread_table,
)
from rlfactory.run.atomic_write import write_text
from rlfactory.sweep.table import TableInfo
from rlfactory.utils.text import plain, table_lines

LEADERBOARD_FIGURE = "leaderboard.png"
_FILE_WIDTH = 160
_NARROWEST = 16
_PAD = 2  # spaces at either side of a cell


class Terminal:
    """Prints tables as wide as the terminal, or wider where a number would be cut."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = _FILE_WIDTH

    def heading(self, text: str) -> None:
        """Print a line in bold."""
        self.console.print(text, style="bold", markup=False, soft_wrap=True)

    def table(self, table: TextTable | None, title: str | None = None) -> None:
        """Print a table below its title; nothing if it is None."""
        if table is None:
            return
        self.console.print()
        if title is not None:
            self.heading(title)
        width, between = self.console.width, 2 * _PAD * (len(table.heads) - 1)
        if sum(_least_widths(table)) + between > width:
            table = replace(table, heads=_wrapped_heads(table))
            self.console.width = max(width, sum(_least_widths(table)) + between)
        self.console.print(rich_table(table))
        self.console.width = width

    def notes(self, notes: Sequence[str]) -> None:
        """Print sentences below a table."""
        self.console.print()
        for note in notes:
            self.console.print(note, style="dim", markup=False, soft_wrap=True)


def _least_widths(table: TextTable) -> list[int]:
    """The widths of the columns: all of a number and its head, some of a text, which may wrap."""
    longest = [
        max(len(part) for text in column for part in text.split("\n"))
        for column in zip(table.heads, *table.lines, strict=True)
    ]
    return [
        min(_NARROWEST, size) if side == "l" else size
        for size, side in zip(longest, table.sides, strict=True)
    ]


def _wrapped_heads(table: TextTable) -> list[str]:
    """The heads of numbers in lines as wide as these."""
    heads = []
    for number, (head, side) in enumerate(zip(table.heads, table.sides, strict=True)):
        widest = max((len(line[number]) for line in table.lines), default=1)
        is_left = side == "l"
        heads.append(head if is_left else fill(head, max(widest, 1), break_long_words=False))
    return heads


def rich_table(table: TextTable) -> Table:
    """The table as rich prints it: left-aligned cells may wrap, numbers are never cut."""
    printed = Table(box=None, pad_edge=False, padding=(0, _PAD), header_style="bold")
    for head, side, width in zip(table.heads, table.sides, _least_widths(table), strict=True):
        justify: JustifyMethod = "left" if side == "l" else "right"
        printed.add_column(escape(head), justify=justify, min_width=width, overflow="fold")
    for line in table.lines:
        printed.add_row(*map(escape, line))
    return printed


FILE = "report.md"
_LONGEST = 200  # letters of a response in a table
IMAGES = "images"


def write_markdown(report: Report, folder: Path, figure: str | None = None) -> Path:
    """Write report.md and copies of the images; `figure` is the curves' file in the folder."""
    path = folder / FILE
    write_text(path, "\n".join(_lines(report, folder, figure)) + "\n")
    return path


def markdown_table(table: TextTable) -> list[str]:
    """A table's lines."""
    heads, *lines = ([*map(plain, cells)] for cells in [table.heads, *table.lines])
    return table_lines(table.sides, heads, lines)


def _lines(report: Report, folder: Path, figure: str | None) -> Iterator[str]:
    yield f"# {plain(report.title)}"
    yield ""
    if report.about is not None:
        yield from about_lines(report.about)
    yield from markdown_table(main_table(report))
    yield ""
    yield from (f"- {plain(note)}" for note in report.notes)
    if (table := leaderboard_table(report.entries)) is not None:
        yield from ["", "## Leaderboard", "", plain(LEADERBOARD_NOTE), "", *markdown_table(table)]
        yield from ["", f"![leaderboard]({LEADERBOARD_FIGURE})"]
    yield from claim_lines(report.claims)
    if figure is not None:
        yield from ["", "## Curves", "", f"![curves over training]({figure})"]
    tables = {
        **{plain(title): table for title, table in category_tables(report).items()},
        "Interquartile means": spread_table(report),
        "Against the first row": comparison_table(report),
        "What differs": difference_table(report),
    }
    for title, table in tables.items():
        if table is not None:
            yield from ["", f"## {title}", "", *markdown_table(table)]
    if report.images:
        yield from ["", "## Samples"]
    for number, image in enumerate(report.images):
        copy = folder / IMAGES / f"{number:02d}_{image.path.name}"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copyfile(image.path, copy)
        title = plain(f"{image.row}: {image.caption}")
        yield from ["", f"![{title}]({copy.relative_to(folder).as_posix()})", "", title]
    if report.texts:
        yield from ["", "## Responses", "", *_texts(report)]


def claim_lines(results: Sequence[ClaimResult]) -> list[str]:
    """The section on the claims of a table's source; empty without any."""
    table = claim_table(results)
    if table is None:
        return []
    counted = f"{counts_text(results)}. {NOTE}"
    return ["", "## Claims", "", plain(counted), "", *markdown_table(table)]


def about_lines(about: TableInfo) -> list[str]:
    """What a table is about, as items."""
    hours = "not said" if about.gpu_hours is None else f"{about.gpu_hours:g} GPU hours"
    facts = {
        "Paper": f"{about.paper}, {about.table}".strip(", "),
        "Budget of the full form": hours,
        "Run here": about.ran,
        "Expected": about.tolerance,
    }
    return [*(f"- {name}: {plain(fact)}" for name, fact in facts.items() if fact), ""]


def _texts(report: Report) -> list[str]:
    heads = ["row", "prompt", "before", "reward before", "after", "reward after"]
    lines = [
        [row, pair.prompt, *_shown(pair.before), *_shown(pair.after)]
        for row, pairs in report.texts.items()
        for pair in pairs
    ]
    return markdown_table(TextTable(heads, lines, frozenset({"row", "prompt", "before", "after"})))


def _shown(one: Sample) -> tuple[str, str]:
    """The words of a response that fit into a cell of a page, and its reward."""
    words = " ".join((one.text or "").split())
    if len(words) > _LONGEST:
        end = words.rfind(" ", 0, _LONGEST) if " " in words[:_LONGEST] else _LONGEST
        words = f"{words[:end]} …"
    return words, NONE if math.isnan(one.score) else f"{one.score:.3g}"


CSV_FILE = "table.csv"
LATEX_FILE = "table.tex"
HEADS = (
    *("row", "column", "paper", "mean", "low", "high", "n", "iqm", "iqm_low", "iqm_high"),
    *("values", "steps", "nfe", "status", "note"),
)
_ESCAPES = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "…": r"\ldots{}",
    "−": "$-$",
    "<": "$<$",
    ">": "$>$",
}


def write_csv(report: Report, folder: Path) -> Path:
    """Write table.csv: a line for each row and column, all digits of its numbers.

    Unknown numbers are empty; `values` are separated by spaces.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADS)
    for row in report.rows:
        for column in report.columns:
            c = row.cells[column.name]
            numbers = [c.paper, c.mean, c.low, c.high, c.n, c.iqm, c.iqm_low, c.iqm_high]
            values = " ".join(map(str, c.values))
            ends = [values, row.steps, row.nfe, row.status, row.note]
            writer.writerow([*map(_cell, [row.name, column.name]), *numbers, *map(_cell, ends)])
    path = folder / CSV_FILE
    write_text(path, text.getvalue())
    return path


def _cell(value: object) -> object:
    """A text that a spreadsheet does not take for a formula."""
    if not isinstance(value, str) or value[:1] not in tuple("=+-@\t\r"):
        return value
    number = r"[-+]?[\d.]+(e[-+]?\d+)?|[-+]?inf|nan"
    is_numbers = all(re.fullmatch(number, part) for part in value.split())
    return value if is_numbers else f"'{value}"


def write_latex(report: Report, folder: Path) -> Path:
    r"""Write table.tex, for `\input{table.tex}` with the package booktabs."""
    path = folder / LATEX_FILE
    lines = [f"% {_one_line(report.title)}", *latex_table(main_table(report))]
    write_text(path, "\n".join(lines) + "\n")
    return path


def latex_table(table: TextTable) -> list[str]:
    """The lines of a tabular."""
    rows = [f"{' & '.join(map(escaped, row))} \\\\" for row in [table.heads, *table.lines]]
    rules = [r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
    return [rf"\begin{{tabular}}{{{table.sides}}}", *rules, r"\end{tabular}"]


def escaped(text: str) -> str:
    """Text in one line with LaTeX's special characters escaped."""
    return "".join(_ESCAPES.get(letter, letter) for letter in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())
