"""The top of the page: what was reproduced, what it costs, and how far it got."""

from rlfactory.report.page.markup import Markup, join, tag
from rlfactory.report.page.words import count, plural
from rlfactory.report.report import Report
from rlfactory.sweep.table import About


def head(report: Report) -> Markup:
    """Title, source and facts."""
    about = report.about
    source = " · ".join(part for part in (about.paper, about.table) if part) if about else ""
    eyebrow = tag("p", source, class_="eyebrow") if source else None
    facts = [*(_facts(about) if about else []), ("Rows", _rows(report))]
    listed = [tag("div", tag("dt", name), tag("dd", text)) for name, text in facts]
    return join(eyebrow, tag("h1", report.title), tag("dl", *listed, class_="facts"))


def _facts(about: About) -> list[tuple[str, str]]:
    hours = about.gpu_hours
    budget = "" if hours is None else f"{count(hours)} GPU-hours at full size"
    facts = [("Budget", budget), ("Run here", about.ran), ("Tolerance", about.tolerance)]
    return [(name, text) for name, text in facts if text]


def _rows(report: Report) -> str:
    """How many rows there are, and how many of them have a number of ours."""
    ours = sum(any(c.mean is not None for c in row.cells.values()) for row in report.rows)
    runs = sum(max((c.n for c in row.cells.values()), default=0) for row in report.rows)
    some = "" if ours == len(report.rows) else f"{ours} of them "
    return f"{plural(len(report.rows), 'row')}, {some}measured in {plural(runs, 'run')}"
