"""Curves drawn with matplotlib: one figure for files, and one panel as SVG for the HTML page.

A panel shows one metric: for each row of the table a line with its 95 % interval as a band, and the
paper's value dashed. Of a few measurements it shows dots with error bars: a line between two of
them would suggest values that nobody measured.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from rlfactory.report.labels import metric_unit
from rlfactory.report.plot import (
    COLORS,
    Plot,
    add_panels,
    draw_dots,
    panel_grid,
    placed_panel,
    saved_figure,
    svg_for_html,
)
from rlfactory.report.report import Curve, Report
from rlfactory.report.table import fixed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILE = "curves"
SVG_SIZE = (400, 236)
SVG_BOX = (50, 10, 388, 204)  # left, top, right, bottom of the axes in `panel_svg`
FEWEST = 6
"""Fewer measurements of a row than this are drawn as dots."""
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)))
_MARKERS = ("o", "s", "^")  # as many as dashes: what tells rows of one color apart
_DODGE = 0.16  # how far the dots of one iteration spread, as a share of the step between two
_APART = 0.02  # how far two of them are apart at most, as a share of all iterations
_LEGEND_COLUMNS = 3
_LETTERS, _HANDLE = 15, 7  # letters to an inch of the legend, and to the width of its lines
_MOST_BANDS = 8  # the bands of more rows would cover each other
_MOST_BAND = 0.5  # how far a band may extend the axis, as a share of the lines' own span


def draw_report(curves: Sequence[Curve], folder: Path) -> list[Path]:
    """Write curves.png and curves.svg with a panel for each metric; no files without curves."""
    panels = by_metric(curves)
    if not panels:
        return []
    rows = [*dict.fromkeys(curve.row for curve in curves)]
    columns, lines = panel_grid(len(panels))
    width = max(4.3 * columns, 6.0)
    legend_columns = _legend_columns(rows, width)
    legend_height = 0.22 * -(-len(rows) // legend_columns)
    paths = [folder / f"{FILE}.png", folder / f"{FILE}.svg"]
    with saved_figure((width, 3.0 * lines + legend_height), *paths) as figure:
        add_panels(figure, [partial(draw_panel, panel=panel, rows=rows) for panel in panels])
        row_legend(figure, rows, legend_columns)
    return paths


def panel_svg(
    panel: Sequence[Curve], rows: Sequence[str], name: str
) -> tuple[Markup, tuple[float, float, float, float]]:
    """One panel as SVG to stand inside an HTML page, and the limits (x0, x1, y0, y1) of its axes.

    The axes fill `SVG_BOX`. Colours are the CSS variables --c0 to --c9, --faint, --strong and
    --rule. What belongs to one row has `data-row` with its number in `rows`. `name` keeps ids apart
    from those of other panels.
    """
    width, height = SVG_SIZE
    left, top, right, bottom = SVG_BOX
    box = (left / width, 1 - bottom / height, (right - left) / width, (bottom - top) / height)
    draw = partial(draw_panel, panel=panel, rows=rows, tag_rows=True)
    with placed_panel(draw, (width / 72, height / 72), box) as (figure, axes):
        axes.set(title="", xlabel="", ylabel="", xlim=_x_limits(panel))
        axes.locator_params(axis="y", nbins=5, steps=[1, 2, 5, 10])
        axes.xaxis.grid(visible=False)
        axes.spines.left.set_visible(False)
        axes.tick_params(length=0, pad=7)
        limits = (*axes.get_xlim(), *axes.get_ylim())
        return svg_for_html(figure, name), limits


def by_metric(curves: Sequence[Curve]) -> list[list[Curve]]:
    """The curves of each panel."""
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        panels.setdefault((curve.metric, curve.label), []).append(curve)
    return [*panels.values()]


def draw_panel(
    axes: "Axes", panel: Sequence[Curve], rows: Sequence[str], *, tag_rows: bool = False
) -> None:
    """Draw the curves of one metric in the colors of their rows; `tag_rows` sets SVG ids."""
    for curve, offset in zip(panel, _offsets(panel), strict=True):
        number = rows.index(curve.row)
        has_interval = curve.high != curve.mean and _has_intervals(panel)
        gid = f"row-{number}" if tag_rows else None
        draw = _draw_dots if is_sparse(curve) else draw_line
        draw(axes, replace(curve, x=[x + offset for x in curve.x]), number, has_interval, gid)
    for paper in _papers(panel):
        claiming = [rows.index(c.row) for c in panel if c.paper == paper]
        lone = len(claiming) == 1
        colour = row_style(claiming[0])[0] if lone else "#55575e"
        gid = f"row-{claiming[0]}" if tag_rows and lone else None
        axes.axhline(paper, color=colour, linestyle=(0, (5, 3)), linewidth=1.1, gid=gid)
    axes.set_ylim(*_y_limits(panel))
    axes.set_title(short(panel[0].label or panel[0].metric))
    axes.set_ylabel(metric_unit(panel[0].metric))


def is_sparse(curve: Curve) -> bool:
    """Whether a curve has so few measurements that they are drawn as dots."""
    return len(curve.x) < FEWEST


def _draw_dots(
    axes: "Axes", curve: Curve, number: int, has_interval: bool, gid: str | None
) -> None:
    colour, _, marker = row_style(number)
    ends = (curve.low, curve.high) if has_interval else None
    style = {"fmt": marker, "color": colour, "markersize": 4, "capsize": 2, "elinewidth": 1.2}
    bars = draw_dots(axes, curve.x, curve.mean, ends, **style)
    for artist in bars.get_children():
        artist.set_gid(gid)


def draw_line(
    axes: "Axes", curve: Curve, number: int, has_interval: bool = True, gid: str | None = None
) -> None:
    """Draw a curve as that of row `number`, with its interval as a band."""
    colour, dashes, marker = row_style(number)
    (line,) = axes.plot(curve.x, curve.mean, color=colour, linestyle=dashes, gid=gid)
    if curve.metric.startswith("eval/"):
        line.set(marker=marker, markersize=4)
    if has_interval:
        band = axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15)
        band.set(linewidth=0, gid=gid)


def _offsets(panel: Sequence[Curve]) -> list[float]:
    """By how much each curve is shifted along x, so that dots of one iteration do not cover."""
    iterations = sorted({x for curve in panel for x in curve.x})
    sparse = [i for i, curve in enumerate(panel) if is_sparse(curve)]
    step = min((b - a for a, b in pairwise(iterations)), default=1.0)
    middle = (len(sparse) - 1) / 2
    width = _DODGE * step / max(middle, 1)
    if len(iterations) > 1:
        width = min(width, _APART * (iterations[-1] - iterations[0]))
    places = {i: width * (place - middle) for place, i in enumerate(sparse)}
    return [places.get(i, 0.0) for i in range(len(panel))]


def _has_intervals(panel: Sequence[Curve]) -> bool:
    return len(panel) <= _MOST_BANDS


def _papers(panel: Sequence[Curve]) -> list[float]:
    """The paper's values, each once; none where there are many rows, since they would be a grid."""
    claimed = [c.paper for c in panel if c.paper is not None]
    return [*dict.fromkeys(claimed)] if _has_intervals(panel) else []


def _x_limits(panel: Sequence[Curve]) -> tuple[float, float]:
    x = [x for curve in panel for x in curve.x]
    low, high = (min(x), max(x)) if max(x) > min(x) else (min(x) - 1, max(x) + 1)
    air = 0.04 * (high - low) if any(map(is_sparse, panel)) else 0.0
    return low - air, high + air


def _y_limits(panel: Sequence[Curve]) -> tuple[float, float]:
    """All of the means and of the dots' error bars, and some of the bands.

    The bands of two seeds would flatten the lines; an error bar that is cut off would be read as
    a shorter one.
    """
    means = _finite([*(y for c in panel for y in c.mean), *_papers(panel)])
    low, high = min(means, default=0.0), max(means, default=0.0)
    air = (high - low) or abs(high) or 1.0
    most = math.inf if all(map(is_sparse, panel)) else _MOST_BAND * air
    drawn = panel if _has_intervals(panel) else []
    bottom = max(min(_finite(y for c in drawn for y in c.low), default=low), low - most)
    top = min(max(_finite(y for c in drawn for y in c.high), default=high), high + most)
    return min(bottom, low) - 0.05 * air, max(top, high) + 0.05 * air


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def row_style(number: int) -> tuple[str, object, str]:
    """A row's colour, dashes and marker; the last two differ where colours come again."""
    again, colour = divmod(number, len(COLORS))
    return COLORS[colour], _DASHES[again % len(_DASHES)], _MARKERS[again % len(_MARKERS)]


def _legend_columns(rows: Sequence[str], width: float) -> int:
    """How many entries of the legend fit beside each other on `width` inches."""
    longest = max(len(short(row)) for row in rows) + _HANDLE
    return min(max(int(_LETTERS * width) // longest, 1), _LEGEND_COLUMNS)


def row_legend(
    figure: "Figure", rows: Sequence[str], columns: int, longest: int = 80, markersize: float = 4
) -> None:
    """Draw a legend of the rows below the panels."""
    from matplotlib.lines import Line2D

    styles = [row_style(number) for number in range(len(rows))]
    handles = [
        Line2D([], [], color=colour, linestyle=dashes, marker=marker, markersize=markersize)
        for colour, dashes, marker in styles
    ]
    where = {"loc": "outside lower left", "ncols": columns}
    figure.legend(handles, [short(row, longest) for row in rows], **where)


def short(name: str, longest: int = 80) -> str:
    """A name cut to `longest` letters; `$` is escaped, since it would begin mathematics."""
    cut = name if len(name) <= longest else f"{name[: longest - 1]}…"
    return cut.replace("$", r"\$")


FAR = 1.5  # a paper's value further from the curves than this many of their spans is not drawn


def rows_with_curves(report: Report) -> list[str]:
    """Names of the rows that have a curve, in the table's order; the position is the colour."""
    having = dict.fromkeys(curve.row for curve in report.curves if _finite_curve(curve).x)
    names = [row.name for row in report.rows if row.name in having]
    return [*names, *(name for name in having if name not in names)]


def plots(report: Report) -> list[Plot]:
    """A plot for each metric, in the order in which they come."""
    rows = rows_with_curves(report)
    digits = {column.label: column.digits + 1 for column in report.columns}
    panels = by_metric([curve for c in report.curves if (curve := _finite_curve(c)).x])
    return [_plot(panel, rows, digits, f"p{i}") for i, panel in enumerate(panels)]


def _plot(panel: Sequence[Curve], rows: Sequence[str], digits: dict[str, int], name: str) -> Plot:
    label = panel[0].label or panel[0].metric
    own = digits.get(label, 4)
    far = [curve for curve in panel if not _is_near(curve.paper, panel)]
    near = [replace(curve, paper=None) if curve in far else curve for curve in panel]
    svg, limits = panel_svg(near, rows, name)
    spoken = [f"{c.row} from {fixed(c.mean[0], own)} to {fixed(c.mean[-1], own)}" for c in panel]
    return Plot(
        label=label,
        unit=metric_unit(panel[0].metric),
        svg=svg,
        spoken=f"{label} over iterations: {'; '.join(spoken)}.",
        far=[*dict.fromkeys(f"{c.row} {fixed(c.paper, max(0, own - 1))}" for c in far)],
        data={
            "digits": own,
            "limits": limits,
            "lines": [_numbers(curve, rows.index(curve.row)) for curve in panel],
        },
    )


def _numbers(curve: Curve, row: int) -> dict[str, object]:
    """The values in six digits: enough for any tooltip."""
    ends = {"mean": curve.mean, "low": curve.low, "high": curve.high}
    short = {
        name: [float(f"{v:.6g}") if math.isfinite(v) else None for v in values]
        for name, values in ends.items()
    }
    return {"row": row, "x": curve.x, **short}


def _is_near(paper: float | None, panel: Sequence[Curve]) -> bool:
    """Whether the axis can hold a paper's value without making the curves flat."""
    means = [mean for curve in panel for mean in curve.mean]
    low, high = min(means), max(means)
    reach = FAR * (high - low or max(abs(high) * 0.1, 1e-6))
    return paper is None or low - reach <= paper <= high + reach


def _finite_curve(curve: Curve) -> Curve:
    """A curve without the points, and without the paper's value, that are not finite."""
    points = zip(curve.x, curve.mean, curve.low, curve.high, strict=True)
    kept = [point for point in points if math.isfinite(point[1])]
    x, mean, low, high = ([point[i] for point in kept] for i in range(4))
    known = curve.paper is not None and math.isfinite(curve.paper)
    return replace(curve, x=x, mean=mean, low=low, high=high, paper=curve.paper if known else None)
