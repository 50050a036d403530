"""Tables of text cells with their titles, and how terminal, Markdown and LaTeX show them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from rlfactory.utils.console import printable
from rlfactory.utils.text import plain, table_lines

NONE = "–"
_FILE_WIDTH = 160
_NARROWEST = 16
_PAD = 2  # spaces at either side of a cell
_LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "–": "--", "…": r"\ldots{}", "−": "$-$", "<": "$<$", ">": "$>$"},
}


@dataclass(frozen=True)
class TextTable:
    """A table of text cells.

    The first column and those whose heads are in `left` are left-aligned, the others right-aligned.
    The cells in `strong`, by line and column, stand out.
    """

    heads: list[str]
    lines: list[list[str]]
    left: frozenset[str] = frozenset({"status", "note"})
    strong: frozenset[tuple[int, int]] = frozenset()

    @property
    def sides(self) -> str:
        """`l` or `r` for each column."""
        return "".join("l" if i == 0 or h in self.left else "r" for i, h in enumerate(self.heads))

    def marked(self, mark: str, *, end: str = "") -> list[list[str]]:
        """The lines with a mark around what stands out."""
        return [
            [f"{mark}{c}{end or mark}" if (i, j) in self.strong else c for j, c in enumerate(line)]
            for i, line in enumerate(self.lines)
        ]


@dataclass(frozen=True)
class Section:
    """A table with its title, and a sentence on it; `folded` where only some readers want it."""

    title: str
    table: TextTable
    note: str = ""
    folded: bool = False


def titled(tables: dict[str, TextTable | None]) -> list[Section]:
    """The sections of the tables that there are."""
    return [Section(title, table) for title, table in tables.items() if table is not None]


def joined(values: Sequence[float | None], form: str) -> str:
    """A number, or the ends of an interval, in a format; a dash where they are not all known."""
    known = [format(value, form) for value in values if value is not None]
    return " … ".join(known) if known and len(known) == len(values) else NONE


def short_count(value: float | None) -> str:
    """A number of things in about three digits: 960, 5,400, 138 k, 1.2 M."""
    if value is None or math.isnan(value):
        return NONE
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(size, 1e4):
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}"


class Terminal:
    """Prints tables as wide as the terminal, or wider where a number would be cut."""

    def __init__(self) -> None:
        # in a notebook's cell one output, and not one a line
        self.console = Console(highlight=False, force_jupyter=False)
        if not self.console.is_terminal:
            self.console.width = _FILE_WIDTH

    def heading(self, text: str) -> None:
        """Print a line in bold."""
        self.console.print(printable(text), style="bold", markup=False, soft_wrap=True)

    def sections(self, sections: Sequence[Section]) -> None:
        """Print tables below their titles."""
        for section in sections:
            self.table(section.table, section.title)

    def table(self, table: TextTable, title: str = "") -> None:
        """Print a table below its title."""
        self.console.print()
        if title:
            self.heading(title)
        shown, width = rich_table(table), self.console.width
        unlimited = self.console.options.update(max_width=10**6)
        least = Measurement.get(self.console, unlimited, shown).minimum + 2 * _PAD
        self.console.width = max(width, least)
        self.console.print(shown)
        self.console.width = width

    def notes(self, notes: Sequence[str]) -> None:
        """Print sentences below a table."""
        self.console.print()
        for note in notes:
            self.console.print(printable(note), style="dim", markup=False, soft_wrap=True)


def rich_table(table: TextTable) -> Table:
    """The table as rich prints it: left-aligned cells may wrap, numbers are never cut."""
    shown = replace(table, lines=[[escape(printable(c)) for c in line] for line in table.lines])
    printed = Table(box=None, pad_edge=False, padding=(0, _PAD), header_style="bold")
    columns = zip(table.heads, *table.lines, strict=True)
    for side, (head, *cells) in zip(table.sides, columns, strict=True):
        widest = max(map(len, [*head.split(), *cells]))
        least = min(_NARROWEST, widest) if side == "l" else widest
        justify: JustifyMethod = "left" if side == "l" else "right"
        printed.add_column(escape(head), justify=justify, min_width=least, overflow="fold")
    for line in shown.marked("[bold]", end="[/bold]"):
        printed.add_row(*line)
    return printed


def markdown_table(table: TextTable) -> list[str]:
    """A table's lines in Markdown."""
    shown = replace(table, lines=[[*map(plain, line)] for line in table.lines])
    return table_lines(table.sides, [*map(plain, table.heads)], shown.marked("**"))


def markdown_sections(sections: Sequence[Section], heading: str = "##") -> list[str]:
    """The lines of sections below their headings; those that are folded stand in `details`."""
    lines = []
    for section in sections:
        title, table = plain(section.title), markdown_table(section.table)
        note = [plain(section.note), ""] if section.note else []
        head = f"<details><summary>{title}</summary>" if section.folded else f"{heading} {title}"
        end = ["", "</details>"] if section.folded else []
        lines += ["", head, "", *note, *table, *end]
    return lines


def latex_table(table: TextTable) -> list[str]:
    """The lines of a tabular."""
    rows = [f"{' & '.join(map(latex, row))} \\\\" for row in [table.heads, *table.lines]]
    rules = [r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
    return [rf"\begin{{tabular}}{{{table.sides}}}", *rules, r"\end{tabular}"]


def latex(text: str) -> str:
    """Text in one line with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))
