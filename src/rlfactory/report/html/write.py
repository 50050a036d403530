"""Fill the page's template with a report."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from rlfactory.report.claim_table import NOTE, claim_table, counts_text
from rlfactory.report.html.plots import count, fixed, interval, plots, rows_with_curves
from rlfactory.report.leaderboard import NOTE as LEADERBOARD_NOTE
from rlfactory.report.leaderboard import leaderboard_table
from rlfactory.report.plot import FEWEST, SVG_BOX, SVG_SIZE
from rlfactory.report.report import Comparison, Report, ReportRow, SampleImage
from rlfactory.report.table import category_tables
from rlfactory.run.atomic_write import write_text
from rlfactory.run.figures.figure import COLORS
from rlfactory.run.page.images import EmbeddedImage, embed
from rlfactory.run.page.template import asset, fill_page
from rlfactory.run.statistics import MIN_RUNS
from rlfactory.sweep.table import Column
from rlfactory.utils.text import plural

PACKAGE = "rlfactory.report.html"
FILE = "report.html"


def write_page(report: Report, folder: Path) -> Path:
    """Write the report into the folder as one page that needs nothing beside it."""
    path = folder / FILE
    write_text(path, page(report))
    return path


def page(report: Report) -> str:
    """The HTML document. An image that can't be read is named among the notes."""
    images, unreadable = _embedded(report)
    rows, drawn = rows_with_curves(report), plots(report)
    script = asset(PACKAGE, "page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = {"rows": rows, "plots": [plot.data for plot in drawn], "box": SVG_BOX, "size": SVG_SIZE}
    return fill_page(
        PACKAGE,
        [fixed, interval, count, plural, status_kind, runs_counted, summary, is_gain],
        report=report,
        halves={column.name: halves(column, report.rows) for column in report.columns},
        best={column.name: best_row(column, report.rows) for column in report.columns},
        columns={column.name: column for column in report.columns},
        colours={name: number for number, name in enumerate(rows)},
        palette=len(COLORS),
        plots=drawn,
        categories=category_tables(report),
        leaderboard=leaderboard_table(report.entries),
        leaderboard_note=LEADERBOARD_NOTE,
        claims=claim_table(report.claims),
        claims_note=f"{counts_text(report.claims)}. {NOTE}",
        fewest=FEWEST,
        has_band=any(curve.high != curve.mean for curve in report.curves),
        images=images,
        notes=[*report.notes, *unreadable],
        data={**data, "palette": len(COLORS)},
        script=Markup(script),
        script_hash=f"'sha256-{digest}'",
        title_of=dict(_titles(report, bool(drawn), bool(images), bool(unreadable))),
    )


def best_row(column: Column, rows: Sequence[ReportRow]) -> str | None:
    """The row whose mean is the best of several.

    None where neither more nor less is better, and where a row has fewer than `MIN_RUNS` runs:
    those show no winner.
    """
    cells = {row.name: cell for row in rows if (cell := row.cells.get(column.name))}
    known = {name: cell.mean for name, cell in cells.items() if cell.mean is not None}
    if column.better not in ("higher", "lower") or len(set(known.values())) < 2:
        return None
    if min(cells[name].n for name in known) < MIN_RUNS:
        return None
    pick = max if column.better == "higher" else min
    return pick(known, key=lambda name: known[name])


def is_gain(comparison: Comparison, column: Column | None) -> bool:
    """Whether a row is better than the other by an interval over `MIN_RUNS` pairs or more."""
    low, high = comparison.low, comparison.high
    if column is None or low is None or high is None or comparison.n < MIN_RUNS:
        return False
    return low > 0 if column.better == "higher" else high < 0


def halves(column: Column, rows: Sequence[ReportRow]) -> list[str]:
    """Which of `paper` and `ours` have a number in a column; `ours` where neither has.

    The page heads them so only where a paper's number stands beside ours.
    """
    cells = [cell for row in rows if (cell := row.cells.get(column.name))]
    paper = any(cell.paper is not None for cell in cells)
    ours = any(cell.mean is not None for cell in cells)
    return [*(["paper"] if paper else []), *(["ours"] if ours or not paper else [])]


def status_kind(status: str) -> str:
    """The CSS class of a row's status."""
    if not status:
        return "none"
    if any(bad in status.lower() for bad in ("fail", "damaged", "error")):
        return "bad"
    return "good" if status.lower().startswith("done") or status.endswith("done") else "open"


def runs_counted(row: ReportRow) -> str:
    """How many runs are in the means of a row: `3`, or `1–3` where columns differ."""
    counts = sorted({cell.n for cell in row.cells.values() if cell.mean is not None})
    return "–".join(str(n) for n in dict.fromkeys(counts[:1] + counts[-1:])) or "–"


def summary(report: Report) -> str:
    """How many rows there are, and how many of them have a number of ours."""
    ours = sum(any(c.mean is not None for c in row.cells.values()) for row in report.rows)
    # a row of models before training has the first evaluations of the other rows' runs
    trained = [row for row in report.rows if row.steps is not None]
    runs = sum(max((c.n for c in row.cells.values()), default=0) for row in trained)
    some = "" if ours == len(report.rows) else f"{ours} of them "
    return f"{plural(len(report.rows), 'row')}, {some}measured in {plural(runs, 'run')}"


def _titles(report: Report, curves: bool, images: bool, lost: bool) -> list[tuple[str, str]]:
    """Anchor and heading of the sections that have anything to show."""
    sections = [
        ("results", "Results", report.rows),
        ("categories", "By category of prompts", report.by_category),
        ("leaderboard", "Leaderboard", report.entries),
        ("claims", "Claims of the source", report.claims),
        ("comparisons", "Comparisons between rows", report.comparisons),
        ("curves", "Curves", curves),
        ("images", "Images", images),
        ("texts", "Responses", report.texts),
        ("configuration", "What differs between the rows", report.differences),
        ("notes", "Notes", report.notes or lost),
    ]
    return [(anchor, title) for anchor, title, content in sections if content]


def _embedded(report: Report) -> tuple[list[tuple[SampleImage, EmbeddedImage]], list[str]]:
    """The images that can be read, and a sentence for each that can't."""
    images, unreadable = [], []
    for image in report.images:
        try:
            images.append((image, embed(image.path)))
        except OSError as error:
            unreadable.append(f"An image of {image.row} is left out: {error}")
    return images, unreadable
