"""A report as Markdown, with its pictures beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

from rlfactory.report.report import Picture, Report
from rlfactory.report.table import (
    Words,
    comparison_table,
    difference_table,
    main_table,
    spread_table,
)
from rlfactory.run.atomic import write_text
from rlfactory.sweep.table import About

FILE = "report.md"
IMAGES = "images"


def write_markdown(report: Report, folder: Path, figure: str | None = None) -> Path:
    """Write report.md, and copies of the pictures; `figure` is the curves' file in the folder."""
    kept = replace(report, pictures=[*_copied(report.pictures, folder)])
    path = folder / FILE
    write_text(path, "\n".join(_lines(kept, folder, figure)) + "\n")
    return path


def markdown_table(words: Words) -> list[str]:
    """A table's lines."""
    sides = ["---" if i == 0 or h in words.left else "---:" for i, h in enumerate(words.heads)]
    rows = [words.heads, *words.lines]
    lines = [f"| {' | '.join(map(plain, row))} |" for row in rows]
    return [lines[0], f"|{'|'.join(sides)}|", *lines[1:]]


def plain(text: str) -> str:
    """One line that can't break a table, nor be taken for marks."""
    escaped = " ".join(text.split())
    for mark in "\\|<*_`":
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped


def _lines(report: Report, folder: Path, figure: str | None) -> Iterator[str]:
    yield f"# {plain(report.title)}"
    yield ""
    if report.about is not None:
        yield from _about(report.about)
    yield from markdown_table(main_table(report))
    yield ""
    yield from (f"- {plain(note)}" for note in report.notes)
    if figure is not None:
        yield from ["", "## Curves", "", f"![curves over training]({figure})"]
    tables = {
        "Interquartile means": spread_table(report),
        "Against the first row": comparison_table(report),
        "What differs": difference_table(report),
    }
    for title, words in tables.items():
        if words is not None:
            yield from ["", f"## {title}", "", *markdown_table(words)]
    if report.pictures:
        yield from ["", "## Samples", *_pictures(report.pictures, folder)]
    if report.texts:
        yield from ["", "## Responses", "", *_texts(report)]


def _about(about: About) -> list[str]:
    hours = "not said" if about.gpu_hours is None else f"{about.gpu_hours:g} GPU hours"
    facts = {
        "Paper": f"{about.paper}, {about.table}".strip(", "),
        "Budget of the full form": hours,
        "Run here": about.ran,
        "Expected": about.tolerance,
    }
    return [*(f"- {name}: {plain(fact)}" for name, fact in facts.items() if fact), ""]


def _pictures(pictures: Sequence[Picture], folder: Path) -> Iterator[str]:
    for picture in pictures:
        title = plain(f"{picture.row}: {picture.caption}")
        yield from ["", f"![{title}]({picture.path.relative_to(folder).as_posix()})", "", title]


def _texts(report: Report) -> list[str]:
    heads = ["row", "prompt", "before", "after"]
    lines = [[t.row, t.prompt, t.before, t.after] for t in report.texts]
    return markdown_table(Words(heads, lines, frozenset(heads)))


def _copied(pictures: Sequence[Picture], folder: Path) -> Iterator[Picture]:
    for number, picture in enumerate(pictures):
        place = folder / IMAGES / f"{number:02d}_{picture.path.name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        copyfile(picture.path, place)
        yield replace(picture, path=place)
