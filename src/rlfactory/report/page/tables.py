"""The page's other tables: one row against another, and where their configurations differ."""

from collections.abc import Sequence

from rlfactory.report.page.markup import Markup, join, tag
from rlfactory.report.page.results import scrolling
from rlfactory.report.page.words import NONE, fixed, spread
from rlfactory.report.report import Cell, Comparison, Report
from rlfactory.sweep.table import Column

COMPARED = (
    ("Row", None),
    ("Against", None),
    ("Number", None),
    ("Difference", "Mean over the seeds that both have, with its 95 % interval"),
    ("P(better)", "That a run of this row is better than one of the other, with a 95 % interval"),
    ("n", "Seeds that both have"),
)


def comparisons(report: Report) -> Markup:
    """A line for each pair of rows in each column."""
    columns = {column.name: column for column in report.columns}
    head = [
        tag("th", tag("abbr", name, title=t) if t else name, scope="col") for name, t in COMPARED
    ]
    body = [_compared(one, columns.get(one.column)) for one in report.comparisons]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="compared")
    return scrolling("Comparisons", table)


def _compared(one: Comparison, column: Column | None) -> Markup:
    digits = column.digits if column else 3
    change = _with_interval(one.difference, one.low, one.high, digits)
    chance = _with_interval(one.probability, one.probability_low, one.probability_high, 2)
    label = column.label if column else one.column
    clear = one.low is not None and one.high is not None and (one.low > 0 or one.high < 0)
    return tag(
        "tr",
        tag("th", one.row, scope="row", class_="name"),
        tag("td", one.other, class_="words"),
        tag("td", label, class_="words"),
        tag("td", change, class_="best" if clear else None),
        tag("td", chance),
        tag("td", str(one.n) if one.n else NONE),
    )


def _with_interval(
    mean: float | None, low: float | None, high: float | None, digits: int
) -> Markup:
    interval = spread(Cell(None, mean, low, high, 0, []), digits)
    around = tag("small", interval) if interval else None
    return join(tag("span", fixed(mean, digits)), around)


def differences(keys: dict[str, list[str]], rows: Sequence[str]) -> Markup:
    """Rows down and keys across, or the other way round where that is less wide.

    What is as in the first row is faint, so that what was changed stands out.
    """
    lines = [_marked(values) for values in keys.values()]
    if len(keys) <= len(rows):
        heads, names = [_key(key) for key in keys], [join(row) for row in rows]
        lines = [list(line) for line in zip(*lines, strict=True)]
    else:
        heads, names = [join(row) for row in rows], [_key(key) for key in keys]
    head = [tag("td"), *(tag("th", head, scope="col") for head in heads)]
    body = [
        tag("tr", tag("th", name, scope="row", class_="name"), *(tag("td", v) for v in line))
        for name, line in zip(names, lines, strict=True)
    ]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="keys")
    return scrolling("Configuration", table)


def _key(key: str) -> Markup:
    return tag("code", key)


def _marked(values: Sequence[str]) -> list[Markup]:
    """The values of a key, those that are the first row's faint."""
    rest = [tag("span", v, class_="same" if v == values[0] else None) for v in values[1:]]
    return [tag("span", values[0]), *rest]
