"""Fill the page's template with a report."""

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path

from rlfactory.report.page.curves import coloured, curves, panels
from rlfactory.report.page.head import head
from rlfactory.report.page.images import Embedded, embed, pictures
from rlfactory.report.page.markup import Markup, join, tag
from rlfactory.report.page.plot import data
from rlfactory.report.page.results import results
from rlfactory.report.page.tables import comparisons, differences
from rlfactory.report.page.texts import texts
from rlfactory.report.report import Picture, Report
from rlfactory.run.atomic import write_text

FILE = "report.html"


def write_page(report: Report, folder: Path) -> Path:
    """Write the report into the folder as one page that needs nothing beside it."""
    path = folder / FILE
    write_text(path, page(report))
    return path


def page(report: Report) -> str:
    """The whole HTML document. A picture that can't be read is named among the notes."""
    shown, lost = _embedded(report)
    parts = _sections(report, shown, [*report.notes, *lost])
    links = [tag("a", title, href=f"#{anchor}") for anchor, title, _ in parts]
    body = [
        tag("section", tag("h2", title, id=anchor), content, aria_labelledby=anchor)
        for anchor, title, content in parts
    ]
    navigation = tag("nav", *links, aria_label="Sections") if len(links) > 1 else None
    plots = {"rows": coloured(report), "plots": [data(panel) for panel in panels(report)]}
    return _filled(
        {
            "TITLE": join(report.title),
            "HEAD": join(head(report), navigation),
            "BODY": join(*body),
            "DATA": embedded_json(plots),
        }
    )


def embedded_json(value: object) -> str:
    """JSON that can stand in a script element, whatever its strings hold."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sections(
    report: Report, shown: list[tuple[Picture, Embedded]], notes: list[str]
) -> list[tuple[str, str, Markup]]:
    """(anchor, heading, content) of those that have anything to show."""
    names = [row.name for row in report.rows]
    found: list[tuple[str, str, Markup | None]] = [
        ("results", "Results", results(report, coloured(report)) if report.rows else None),
        ("comparisons", "Row against row", comparisons(report) if report.comparisons else None),
        ("curves", "Curves", curves(report) if panels(report) else None),
        ("pictures", "Pictures", pictures(shown) if shown else None),
        ("texts", "Texts", texts(report.texts) if report.texts else None),
        (
            "configuration",
            "What differs between the rows",
            differences(report.differences, names) if report.differences else None,
        ),
        ("notes", "Notes", _notes(notes) if notes else None),
    ]
    return [(anchor, title, content) for anchor, title, content in found if content is not None]


def _notes(notes: list[str]) -> Markup:
    return tag("ul", *(tag("li", note) for note in notes), class_="notes")


def _embedded(report: Report) -> tuple[list[tuple[Picture, Embedded]], list[str]]:
    """The pictures that can be read, and a sentence for each that can't."""
    shown, lost = [], []
    for picture in report.pictures:
        try:
            shown.append((picture, embed(picture.path)))
        except OSError as error:
            lost.append(f"A picture of {picture.row} is left out: {error}")
    return shown, lost


def _filled(values: dict[str, str]) -> str:
    """The template with its marks replaced, in one pass: what a value holds is never a mark."""
    template = files("rlfactory.report.page").joinpath("template.html").read_text(encoding="utf-8")
    script = template.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    pieces = template.split("%%")
    values = {**values, "SCRIPT": f"'sha256-{digest}'"}
    return "".join(values[piece] if i % 2 else piece for i, piece in enumerate(pieces))
