"""The files of a report: Markdown, CSV and LaTeX; the HTML page has a module of its own."""

import csv
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile
from textwrap import shorten

from rlfactory.report.report import Report
from rlfactory.report.report_tables import main_table, sections
from rlfactory.report.sample_pairs import Sample
from rlfactory.report.text_table import (
    NONE,
    Section,
    TextTable,
    latex_table,
    markdown_sections,
    markdown_table,
)
from rlfactory.run.atomic_write import write_text
from rlfactory.sweep.table import TableInfo
from rlfactory.utils.text import plain

FILE, CSV_FILE, LATEX_FILE, IMAGES = "report.md", "table.csv", "table.tex", "images"
LEADERBOARD_FIGURE = "leaderboard.png"
_LONGEST = 200  # letters of a response in a table
HEADS = (
    *("row", "column", "paper", "mean", "low", "high", "n", "iqm", "iqm_low", "iqm_high"),
    *("values", "steps", "nfe", "status", "note"),
)


def write_markdown(report: Report, folder: Path, figure: str | None = None) -> Path:
    """Write report.md and copies of the images; `figure` is the curves' file in the folder."""
    write_text(folder / FILE, "\n".join(_lines(report, folder, figure)) + "\n")
    return folder / FILE


def _lines(report: Report, folder: Path, figure: str | None) -> Iterator[str]:
    about = [] if report.about is None else about_lines(report.about)
    yield from [f"# {plain(report.title)}", "", *about, *markdown_table(main_table(report)), ""]
    yield from (f"- {plain(note)}" for note in report.notes)
    if figure is not None:
        yield from ["", "## Curves", "", f"![curves over training]({figure})"]
    if report.entries:
        yield from ["", f"![gains, profiles and training]({LEADERBOARD_FIGURE})"]
    yield from markdown_sections([*sections(report), *_responses(report)])
    if report.images:
        yield from ["", "## Samples"]
    for number, image in enumerate(report.images):
        copy = folder / IMAGES / f"{number:02d}_{image.path.name}"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copyfile(image.path, copy)
        title = plain(f"{image.row}: {image.caption}")
        yield from ["", f"![{title}]({copy.relative_to(folder).as_posix()})", "", title]


def about_lines(about: TableInfo) -> list[str]:
    """The subject of a table, as items."""
    return [*(f"- {name}: {plain(fact)}" for name, fact in facts_of(about).items()), ""]


def facts_of(about: TableInfo) -> dict[str, str]:
    """The subject of a table, by name."""
    hours = "not said" if about.gpu_hours is None else f"{about.gpu_hours:g} GPU hours"
    facts = {"Paper": f"{about.paper}, {about.table}".strip(", "), "Budget of the full form": hours}
    facts |= {"Run here": about.ran, "Expected": about.tolerance}
    return {name: fact for name, fact in facts.items() if fact}


def _responses(report: Report) -> list[Section]:
    heads = ["row", "prompt", "before", "reward before", "after", "reward after"]
    lines = [
        [row, pair.prompt, *_shown(pair.before), *_shown(pair.after)]
        for row, pairs in report.texts.items()
        for pair in pairs
    ]
    table = TextTable(heads, lines, frozenset({"row", "prompt", "before", "after"}))
    return [Section("Responses", table)] if lines else []


def _shown(one: Sample) -> tuple[str, str]:
    """The words of a response that fit into a cell of a page, and its reward."""
    words = " ".join((one.text or "").split())
    cut = shorten(words, _LONGEST, placeholder=" …")
    words = cut if cut != "…" else f"{words[:_LONGEST]} …"  # one long word
    return words, NONE if math.isnan(one.score) else f"{one.score:.3g}"


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
            ends, iqm_ends = c.interval or (None, None), c.iqm_interval or (None, None)
            numbers = [c.paper, c.mean, *ends, c.n, c.iqm, *iqm_ends]
            values = " ".join(map(str, c.values))
            more = [values, row.steps, row.nfe, row.status, row.note]
            writer.writerow([*map(_cell, [row.name, column.name]), *numbers, *map(_cell, more)])
    write_text(folder / CSV_FILE, text.getvalue())
    return folder / CSV_FILE


def _cell(value: object) -> object:
    """A text that a spreadsheet does not take for a formula."""
    if not isinstance(value, str) or not value.startswith(tuple("=+-@\t\r")):
        return value
    number = r"[-+]?[\d.]+(e[-+]?\d+)?|[-+]?inf|nan"
    return value if all(re.fullmatch(number, part) for part in value.split()) else f"'{value}"


def write_latex(report: Report, folder: Path) -> Path:
    r"""Write table.tex, for `\input{table.tex}` with the package booktabs."""
    lines = [f"% {' '.join(report.title.split())}", *latex_table(main_table(report))]
    write_text(folder / LATEX_FILE, "\n".join(lines) + "\n")
    return folder / LATEX_FILE
