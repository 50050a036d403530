"""The HTML page of a report, and of a single run with all that its folder holds.

A page needs nothing beside it. All text is escaped: prompts and responses can hold anything.
"""

import base64
import hashlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from PIL import Image

from rlfactory.report.claims import NOTE, claim_table, counts_text
from rlfactory.report.leaderboard import NOTE as LEADERBOARD_NOTE
from rlfactory.report.leaderboard import leaderboard_table
from rlfactory.report.plot import COLORS
from rlfactory.report.report import Comparison, Report, ReportRow
from rlfactory.report.row_curves import FEWEST, SVG_BOX, SVG_SIZE, plots, rows_with_curves
from rlfactory.report.run_content import RunContent
from rlfactory.report.run_curves import run_plots
from rlfactory.report.statistics import MIN_RUNS
from rlfactory.report.summary import change_cells
from rlfactory.report.table import category_tables, fixed, short_count
from rlfactory.run.atomic_write import write_text
from rlfactory.sweep.table import Column
from rlfactory.utils.console import number
from rlfactory.utils.images import read_image
from rlfactory.utils.text import plural

if TYPE_CHECKING:
    from jinja2 import Template

FILE = "report.html"
HTML = Path(__file__).parent / "html"
LARGEST, TILE = 1600, 320
"""Pixels of the longer side of an image, and of one of many samples."""
QUALITY = 84
TINY = 200  # an image this small is enlarged with hard edges


def write_page(report: Report, folder: Path) -> Path:
    """Write the report into the folder as one page that needs nothing beside it."""
    path = folder / FILE
    write_text(path, page(report))
    return path


def write_run_page(run: RunContent) -> Path:
    """Write index.html into a run folder and return its path; OSError if it can't be written."""
    path = run.folder.page
    write_text(path, page(Report(run.name), run))
    return path


def page(report: Report, run: RunContent | None = None) -> str:
    """The HTML document. An image that can't be read is named among the notes."""
    images, unreadable = [], []
    for image in report.images:
        try:
            images.append((image, embed(image.path)))
        except OSError as error:
            unreadable.append(f"An image of {image.row} is left out: {error}")
    strip = embedded(run.strip, LARGEST) if run else None
    rows = rows_with_curves(report)
    drawn = plots(report) if run is None else run_plots(run.curves, run.before, run.after, run.main)
    style, script = ((HTML / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = {"rows": rows, "plots": [plot.data for plot in drawn], "box": SVG_BOX, "size": SVG_SIZE}
    functions: list[Callable[..., Any]] = [fixed, number, interval, plural, status_kind, id, zip]
    functions += [runs_counted, is_gain, embedded, change_cells, short_count]
    about = report.about
    source = " · ".join(filter(None, (about.paper, about.table))) if about else ""
    return template("page.html").render(
        {function.__name__: function for function in functions},
        style=Markup(style),
        report=report,
        run=run,
        eyebrow=source if run is None else run.choices,
        facts=_facts(report) if run is None else run.facts,
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
        strip=strip,
        notes=[*report.notes, *unreadable],
        data={**data, "palette": len(COLORS)},
        script=Markup(script),
        script_hash=f"'sha256-{digest}'",
        title_of=_titles(report, run, drawn, images, strip, unreadable),
    )


@cache
def template(name: str) -> "Template":
    """A template of the folder `html`, which escapes all text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HTML),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _titles(report: Report, run: RunContent | None, *shown: object) -> dict[str, str]:
    """Anchor and heading of the sections that have anything to show."""
    curves, images, strip, unreadable = shown
    sections: list[tuple[str, str, object]] = [
        ("advice", "Advice", run and run.advice),
        ("results", "Results", report.rows),
        ("categories", "By category of prompts", report.by_category),
        ("leaderboard", "Leaderboard", report.entries),
        ("claims", "Claims of the source", report.claims),
        ("comparisons", "Comparisons between rows", report.comparisons),
        ("scores", f"Scores on {run.label}" if run else "", run),
        ("curves", "Curves", curves),
        ("samples", "Samples before and after training", run and run.kinds),
        ("strip", "The same prompts over training", strip),
        ("images", "Images", images),
        ("texts", "Responses", report.texts),
        ("configuration", "What differs between the rows", report.differences),
        ("notes", "Notes", report.notes or unreadable),
        ("how", "How it was made", run),
        ("files", "Files", run),
    ]
    return {anchor: title for anchor, title, content in sections if content}


def _facts(report: Report) -> dict[str, str]:
    """What a report is about, and how many rows it has."""
    facts = {"Rows": summary(report)}
    if (about := report.about) is not None:
        hours = about.gpu_hours
        budget = "" if hours is None else f"{short_count(hours)} GPU-hours at full size"
        facts = {"Budget": budget, "Run here": about.ran, "Tolerance": about.tolerance, **facts}
    return {name: text for name, text in facts.items() if text}


@dataclass(frozen=True)
class EmbeddedImage:
    """An image as a `data:` address."""

    address: str
    width: int
    height: int

    @property
    def is_tiny(self) -> bool:
        """Whether it is enlarged with sharp pixels."""
        return max(self.width, self.height) <= TINY


def embed(path: Path, largest: int = LARGEST) -> EmbeddedImage:
    """Encode a file as WebP, or as PNG where that is smaller; OSError if it can't be read.

    Its longer side has at most `largest` pixels.
    """
    image = read_image(path)
    image.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    webp, png = io.BytesIO(), io.BytesIO()
    image.save(webp, "webp", quality=QUALITY, method=4)
    image.save(png, "png", optimize=True)
    encoded = {"webp": webp.getvalue(), "png": png.getvalue()}
    kind = min(encoded, key=lambda kind: len(encoded[kind]))
    content = base64.b64encode(encoded[kind]).decode()
    return EmbeddedImage(f"data:image/{kind};base64,{content}", *image.size)


def embedded(path: Path | None, largest: int = TILE) -> EmbeddedImage | None:
    """An image for the page; None where it can't be read."""
    try:
        return None if path is None else embed(path, largest)
    except OSError:
        return None


def interval(mean: float | None, low: float | None, high: float | None, digits: int) -> str:
    """`± half` where the interval is symmetric about the mean, else both ends; empty if unknown."""
    if mean is None or low is None or high is None:
        return ""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    below, above = mean - low, high - mean
    if abs(below - above) <= 0.5 * 10**-digits:
        return f"± {fixed((below + above) / 2, digits)}"
    return f"[{fixed(low, digits)}, {fixed(high, digits)}]"


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
