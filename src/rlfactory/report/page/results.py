"""The table that the page is for: the paper's numbers, and ours."""

from collections.abc import Sequence

from rlfactory.report.page.markup import Markup, join, tag
from rlfactory.report.page.plot import colour
from rlfactory.report.page.words import count, fixed, spread
from rlfactory.report.report import Cell, Report, ReportRow
from rlfactory.sweep.table import Column

ARROWS = {"higher": ("↑", "higher is better"), "lower": ("↓", "lower is better")}


def results(report: Report, coloured: Sequence[str]) -> Markup:
    """The table; the names in `coloured` are those of curves, and marked in their colours."""
    both = [(column, _parts(column, report.rows)) for column in report.columns]
    best = {column.name: best_row(column, report.rows) for column in report.columns}
    body = [
        tag("tr", _name(row, coloured), *_cells(row, both, best), *_cost(row))
        for row in report.rows
    ]
    return scrolling("Results", tag("table", _head(both), tag("tbody", *body), class_="results"))


def scrolling(label: str, table: Markup) -> Markup:
    """A table in a box that scrolls where the screen is narrow, by keyboard too."""
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def best_row(column: Column, rows: Sequence[ReportRow]) -> str | None:
    """The row whose mean is the best of several, None where the column ranks none."""
    means = {row.name: cell.mean for row in rows if (cell := row.cells.get(column.name))}
    known = {name: mean for name, mean in means.items() if mean is not None}
    if column.better == "neither" or len(set(known.values())) < 2:
        return None
    pick = max if column.better == "higher" else min
    return pick(known, key=lambda name: known[name])


def _parts(column: Column, rows: Sequence[ReportRow]) -> list[str]:
    """Which halves of a column have anything in them."""
    cells = [cell for row in rows if (cell := row.cells.get(column.name))]
    paper = any(cell.paper is not None for cell in cells)
    ours = any(cell.mean is not None for cell in cells)
    return [name for name, there in (("paper", paper), ("ours", ours or not paper)) if there]


def _head(both: Sequence[tuple[Column, list[str]]]) -> Markup:
    corner = tag("th", "Row", scope="col", rowspan=2, class_="name")
    tops = [_label(column, len(parts)) for column, parts in both]
    nfe = tag("abbr", "NFE", title="Evaluations of the network in a run")
    costs = [("n", "Runs in the mean"), ("Steps", "Iterations of training")]
    ends = [tag("th", tag("abbr", t, title=why), scope="col", rowspan=2) for t, why in costs]
    ends.append(tag("th", nfe, scope="col", rowspan=2))
    ends.append(tag("th", "Status", scope="col", rowspan=2, class_="status"))
    halves = [
        tag("th", part, scope="col", class_="first" if i == 0 else None)
        for _, parts in both
        for i, part in enumerate(parts)
    ]
    return tag("thead", tag("tr", corner, *tops, *ends), tag("tr", *halves))


def _label(column: Column, width: int) -> Markup:
    arrow, meaning = ARROWS.get(column.better, ("", ""))
    mark = tag("span", arrow, title=meaning, role="img", aria_label=meaning) if arrow else None
    space = "\N{NO-BREAK SPACE}" if arrow else None
    return tag("th", column.label, space, mark, scope="colgroup", colspan=width, class_="first")


def _name(row: ReportRow, coloured: Sequence[str]) -> Markup:
    chip = None
    if row.name in coloured:
        chip = tag("i", class_=f"chip {colour(coloured.index(row.name))}", aria_hidden="true")
    note = tag("small", row.note) if row.note else None
    return tag("th", chip, tag("span", row.name), note, scope="row", class_="name")


def _cells(
    row: ReportRow, both: Sequence[tuple[Column, list[str]]], best: dict[str, str | None]
) -> list[Markup]:
    cells = []
    for column, parts in both:
        cell = row.cells.get(column.name) or Cell(None, None, None, None, 0, [])
        for i, part in enumerate(parts):
            first = " first" if i == 0 else ""
            if part == "paper":
                paper = fixed(cell.paper, column.digits)
                cells.append(tag("td", paper, class_=f"paper{first}"))
            else:
                kind = f"ours{' best' if best[column.name] == row.name else ''}{first}"
                cells.append(_ours(cell, column.digits, kind))
    return cells


def _ours(cell: Cell, digits: int, kind: str) -> Markup:
    each = ", ".join(fixed(value, digits) for value in cell.values)
    interval = spread(cell, digits)
    around = tag("small", interval) if interval else None
    title = f"Each run: {each}" if len(cell.values) > 1 else None
    mean = tag("span", fixed(cell.mean, digits))
    return tag("td", join(mean, around), class_=kind, title=title)


def _cost(row: ReportRow) -> list[Markup]:
    counts = sorted({cell.n for cell in row.cells.values() if cell.mean is not None})
    runs = "–" if not counts else "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    return [
        tag("td", runs, class_="first"),
        tag("td", count(row.steps)),
        tag("td", count(row.nfe)),
        tag("td", status(row.status), class_="status"),
    ]


def status(words: str) -> Markup:
    """A state in its colour, which is never all that says it."""
    low = words.lower()
    if any(bad in low for bad in ("fail", "damaged", "error")):
        kind = "bad"
    elif low.startswith("done") or low.endswith("done"):
        kind = "good"
    else:
        kind = "open"
    return tag("span", words or "–", class_=f"state {kind if words else 'none'}")
