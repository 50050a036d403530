"""The section of curves: a legend that shows and hides rows, and a plot for each metric."""

import math
from collections.abc import Sequence
from dataclasses import replace

from rlfactory.report.page.markup import Markup, join, tag
from rlfactory.report.page.plot import Panel, colour, draw, has_points
from rlfactory.report.page.words import fixed
from rlfactory.report.report import Curve, Report


def coloured(report: Report) -> list[str]:
    """The rows that have a curve, in the table's order: a row's place here is its colour."""
    having = {curve.row for curve in report.curves if has_points(curve)}
    names = [row.name for row in report.rows if row.name in having]
    return [*names, *(name for name in _rows(report.curves) if name in having - set(names))]


def panels(report: Report) -> list[Panel]:
    """A plot for each metric, in the order in which they come."""
    rows = coloured(report)
    digits = {column.label: column.digits + 1 for column in report.columns}
    found: dict[str, list[Curve]] = {}
    for curve in filter(has_points, report.curves):
        known = curve.paper is not None and math.isfinite(curve.paper)
        found.setdefault(curve.metric, []).append(curve if known else replace(curve, paper=None))
    made = []
    for metric, curves in found.items():
        label = curves[0].label or metric
        own = digits.get(label, 4)
        made.append(Panel(label, own, curves, [rows.index(curve.row) for curve in curves]))
    return made


def curves(report: Report) -> Markup:
    """The legend and the plots."""
    shown = panels(report)
    rows = coloured(report)
    number = len(shown)
    plots = [_plot(panel, i) for i, panel in enumerate(shown)]
    size = "plots few" if number < 3 else "plots"
    return join(_legend(rows, shown), tag("div", *plots, class_=size))


def _legend(rows: Sequence[str], shown: Sequence[Panel]) -> Markup:
    entries = [
        tag(
            "button",
            tag("i", class_=f"chip {colour(i)}", aria_hidden="true"),
            tag("span", name),
            type="button",
            aria_pressed="true",
            data_row=i,
        )
        for i, name in enumerate(rows)
    ]
    claimed = any(curve.paper is not None for panel in shown for curve in panel.curves)
    keys = [tag("span", tag("i", class_="key line"), "mean over runs")]
    keys += [tag("span", tag("i", class_="key band"), "95 % interval")]
    keys += [tag("span", tag("i", class_="key dashed"), "paper")] if claimed else []
    legend = tag("div", *entries, class_="legend", role="group", aria_label="Rows shown")
    return join(legend, tag("p", *keys, class_="keys", aria_hidden="true"))


def _plot(panel: Panel, number: int) -> Markup:
    far = [f"{c.row} {fixed(c.paper, max(0, panel.digits - 1))}" for c in panel.far()]
    beyond = f"Paper, outside this plot: {', '.join(dict.fromkeys(far))}" if far else None
    area = tag("div", draw(panel, number), class_="canvas", data_plot=number)
    title = tag("figcaption", panel.label)
    return tag("figure", title, area, tag("small", beyond) if beyond else None, class_="plot")


def _rows(curves: Sequence[Curve]) -> list[str]:
    return list(dict.fromkeys(curve.row for curve in curves))
