"""The HTML page of a report, and of a single run with all that its folder holds.

A page needs nothing beside it. All text is escaped: prompts and responses can hold anything.
"""

import base64
import hashlib
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from PIL import Image

from rlfactory.report.draw import FEWEST, SVG_BOX, SVG_SIZE, finite_curve, plots
from rlfactory.report.plot import COLORS
from rlfactory.report.report import Report
from rlfactory.report.report_tables import main_table, sections
from rlfactory.report.run_content import RunContent
from rlfactory.report.run_curves import BAND
from rlfactory.report.sample_pairs import evaluated, main_score, samples_at
from rlfactory.report.text_table import Section
from rlfactory.report.writers import facts_of
from rlfactory.run.atomic_write import write_text
from rlfactory.run.folder import RunFolder
from rlfactory.utils.console import number, printable
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
    write_text(folder / FILE, page(report))
    return folder / FILE


def write_run_page(run: RunContent) -> Path:
    """Write index.html into a run folder and return its path; OSError if it can't be written."""
    bands = {"band": BAND, "dots": "with the 95 % interval of an evaluation"}
    shown = {"title": run.name, "eyebrow": run.choices, "facts": run.facts, "lead": run.sections}
    curves = {"rows": run.rows, "plots": run.plots, "keys": bands if run.curves else {}}
    html = _rendered(run=run, strip=embedded(run.strip, LARGEST), **shown, **curves)
    write_text(run.folder.page, html)
    return run.folder.page


def page(report: Report) -> str:
    """The HTML document of a report. An image that can't be read is named among the notes."""
    images, notes = [], [*report.notes]
    for image in report.images:
        try:
            images.append((image, embed(image.path)))
        except OSError as error:
            notes.append(f"An image of {image.row} is left out: {error}")
    rows = rows_with_curves(report)
    drawn = plots(report.curves, rows, {c.label: c.digits + 1 for c in report.columns})
    script = (HTML / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = {"rows": rows, "plots": [plot.data for plot in drawn], "box": SVG_BOX, "size": SVG_SIZE}
    has_band = any(curve.high != curve.mean for curve in report.curves)
    return _rendered(
        title=report.title,
        facts={"Rows": summary(report), **(facts_of(report.about) if report.about else {})},
        rows=rows,
        plots=drawn,
        keys={
            "line": "mean over runs",
            "dots": f"evaluations, or fewer than {FEWEST} measurements",
            "band": "95 % interval, of dots a bar" if has_band else "",
            "dashed": "paper" if any(curve.paper is not None for curve in report.curves) else "",
        },
        lead=[Section("Results", main_table(report))] if report.rows else [],
        more=sections(report),
        images=images,
        texts=report.texts,
        notes=notes,
        data={**data, "palette": len(COLORS)},
        script=Markup(script),
        script_hash=f"'sha256-{digest}'",
    )


def _rendered(**content: Any) -> str:
    """The page with this content; the parts that it does not name are empty."""
    empty = dict.fromkeys(("run", "eyebrow", "strip", "data", "script", "script_hash"))
    lists: dict[str, Any] = {"more": [], "images": [], "texts": {}, "notes": []}
    functions = [number, plural, embedded, anchor]
    style = Markup((HTML / "page.css").read_text(encoding="utf-8"))
    given: dict[str, Any] = {**empty, **lists, **content}
    html = template("page.html").render(
        {function.__name__: function for function in functions},
        style=style,
        palette=len(COLORS),
        colours={name: number for number, name in enumerate(given["rows"])},
        title_of=_titles(given),
        **given,
    )
    return printable(html)


@cache
def template(name: str) -> "Template":
    """A template of the folder `html`, which escapes all text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    look: Any = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(loader=FileSystemLoader(HTML), autoescape=True, **look)
    return environment.get_template(name)


def _titles(content: Mapping[str, Any]) -> dict[str, str]:
    """Anchor and heading of the sections that have anything to show."""
    run = content["run"]
    parts: list[tuple[str, object]] = [
        ("Advice", run and run.advice),
        *((section.title, not section.folded) for section in content["lead"]),
        ("Curves", content["plots"]),
        *((section.title, True) for section in content["more"]),
        ("Samples before and after training", run and run.kinds),
        ("The same prompts over training", content["strip"]),
        ("Images", content["images"]),
        ("Responses", content["texts"]),
        ("Notes", content["notes"]),
        ("How it was made", run),
        ("Files", run),
    ]
    return {anchor(title): title for title, shown in parts if shown}


def anchor(title: str) -> str:
    """The id of a heading."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


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


def rows_with_curves(report: Report) -> list[str]:
    """Names of the rows that have a curve, in the table's order; the position is the colour."""
    having = dict.fromkeys(curve.row for curve in report.curves if finite_curve(curve).x)
    names = [row.name for row in report.rows if row.name in having]
    return [*names, *(name for name in having if name not in names)]


def summary(report: Report) -> str:
    """How many rows there are, and how many of them have a number of ours."""
    ours = sum(any(c.mean is not None for c in row.cells.values()) for row in report.rows)
    # a row of models before training has the first evaluations of the other rows' runs
    trained = [row for row in report.rows if row.steps is not None]
    runs = sum(max((c.n for c in row.cells.values()), default=0) for row in trained)
    some = "" if ours == len(report.rows) else f"{ours} of them "
    return f"{plural(len(report.rows), 'row')}, {some}measured in {plural(runs, 'run')}"


SHOWN = 8
"""How many samples of a language model a notebook shows."""


def notebook_html(
    folder: RunFolder, before: Mapping[str, float], after: Mapping[str, float]
) -> str:
    """A run below a notebook's cell: the path, the mean scores before and after training, the
    curves, and the newest grid of samples, or a table of the first texts with their scores.
    """
    main, grids = main_score(folder), [p for p in folder.shown().values() if p.suffix == ".png"]
    shown = [picture for picture in [folder.curves, *grids[-1:]] if picture.is_file()]
    samples = [s for i in evaluated(folder)[-1:] for s in samples_at(folder, i, main)]
    texts = [[prompt, s.text, number(s.score)] for prompt, s in samples if s.text is not None]
    html = template("notebook.html").render(
        path=folder.path,
        scores=[[name, number(before.get(name, math.nan)), number(x)] for name, x in after.items()],
        images=[(path.stem, base64.b64encode(path.read_bytes()).decode()) for path in shown],
        main=main,
        texts=texts[:SHOWN],
    )
    return html.strip()
