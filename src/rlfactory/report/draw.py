"""Curves drawn with matplotlib: a figure for files, and panels as SVG for HTML pages.

A panel shows one metric: for each row a line with its interval as a band, and the paper's value
dashed. Of a few measurements it shows dots with error bars: a line between two of them would
suggest values that nobody measured.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from rlfactory.report.labels import metric_unit
from rlfactory.report.plot import COLORS, panel_axes, panel_rows, saved_figure, svg_for_html
from rlfactory.report.report import Curve

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SVG_SIZE = (400, 236)
SVG_BOX = (50, 10, 388, 204)  # left, top, right, bottom of the axes in `panel_svg`
FEWEST = 6
"""Fewer measurements of a row than this are drawn as dots."""
FAR = 1.5  # a paper's value further from the curves than this many of their spans is not drawn
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)))
_MARKERS = ("o", "s", "^")  # as many as dashes: what tells rows of one color apart
_DODGE = 0.16  # how far the dots of one iteration spread, as a share of the step between two
_APART = 0.02  # how far two of them are apart at most, as a share of all iterations
_LEGEND_COLUMNS = 3
_LETTERS, _HANDLE = 15, 7  # letters to an inch of the legend, and to the width of its lines
_MOST_BANDS = 8  # the bands of more rows would cover each other
_MOST_BAND = 0.5  # how far a band may extend the axis, as a share of the lines' own span
_MOST_TICKS = 9
_MOST_POINTS = 2000  # each is an element of the page; of more, every second one or fewer are drawn


@dataclass(frozen=True)
class Plot:
    """A plot of an HTML page as an SVG element.

    Attributes:
        unit: of its vertical axis.
        spoken: what it shows, for those who can't see it.
        far: the paper's values outside of the axes, with their rows.
        data: the numbers that the page's script shows; empty for a still picture.
    """

    label: str
    unit: str
    svg: Markup
    spoken: str
    far: list[str] = field(default_factory=list)
    data: dict[str, object] = field(default_factory=dict)


def draw_figure(
    curves: Sequence[Curve],
    *paths: Path,
    title: str = "",
    ticks: Sequence[float] = (),
    band: str = "",
) -> list[Path]:
    """Write a figure with a panel for each metric to `paths`; no files without curves.

    `ticks` are iterations to mark, if there are three or more; `band` says what the bands are.
    """
    panels = by_metric(curves)
    if not panels:
        return []
    rows = [*dict.fromkeys(curve.row for curve in curves)]
    across = panel_rows(len(panels))
    width = max(4.3 * max(across), 6.0)
    names = [*rows, band] if band else rows
    longest = max(len(short(name)) for name in names) + _HANDLE
    columns = min(max(int(_LETTERS * width) // longest, 1), _LEGEND_COLUMNS)
    height = 3.0 * len(across) + 0.22 * -(-len(names) // columns) + 0.3 * bool(title)
    with saved_figure((width, height), *paths) as figure:
        if title:
            figure.suptitle(short(title), x=0.01, ha="left", fontweight="bold")
        for axes, panel in zip(panel_axes(figure, len(panels)), panels, strict=True):
            draw_panel(axes, panel, rows)
            _mark_iterations(axes, ticks)
        lone = [curve.row for curve in curves if curve.joined is False]
        row_legend(figure, rows, columns, band=band, lone=lone)
    return [*paths]


def _mark_iterations(axes: "Axes", ticks: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator

    limits = axes.get_xlim()
    axes.set_xlabel("iteration")
    few = ticks[:: max(1, -(-(len(ticks) - 1) // (_MOST_TICKS - 1)))]
    whole = MaxNLocator(nbins=6, integer=True, min_n_ticks=1)
    axes.xaxis.set_major_locator(FixedLocator(few) if len(few) >= 3 else whole)
    axes.ticklabel_format(useOffset=False, axis="y")
    axes.set_xlim(*limits)


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
        ends = (curve.low, curve.high) if _has_intervals(panel) else (curve.mean, curve.mean)
        gid = f"row-{number}" if tag_rows else None
        x = [x + offset for x in curve.x]
        _draw(axes, replace(curve, x=x, low=ends[0], high=ends[1]), number, gid)
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
    """Whether the measurements of a curve are drawn as dots, which no line joins."""
    return len(curve.x) < FEWEST if curve.joined is None else not curve.joined


def _draw(axes: "Axes", curve: Curve, number: int, gid: str | None) -> None:
    colour, dashes, marker = row_style(number)
    has_interval = curve.high != curve.mean
    if is_sparse(curve):
        ends = [np.subtract(curve.mean, curve.low), np.subtract(curve.high, curve.mean)]
        reach = np.maximum(ends, 0) if has_interval else None
        style: Any = {"color": colour, "markersize": 4, "capsize": 2, "elinewidth": 1.2}
        bars = axes.errorbar(curve.x, curve.mean, yerr=reach, fmt=marker, **style)
        for artist in bars.get_children():
            artist.set_gid(gid)
        return
    if curve.points:
        shown = slice(None, None, -(-len(curve.x) // _MOST_POINTS))
        x, y = curve.x[shown], curve.points[shown]
        (points,) = axes.plot(x, y, "o", color=colour, gid=gid, alpha=0.45)
        points.set(markersize=3, markeredgewidth=0)
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


def _y_limits(panel: Sequence[Curve]) -> tuple[float, float]:
    """All of the means, of the points and of the dots' error bars, and some of the bands.

    The bands of two seeds would flatten the lines; an error bar that is cut off would be read as
    a shorter one, and a band of a run's samples, beside its points, would fill the panel.
    """
    means = _finite([*(y for c in panel for y in [*c.mean, *c.points]), *_papers(panel)])
    low, high = min(means, default=0.0), max(means, default=0.0)
    air = (high - low) or abs(high) or 1.0
    bottom, top = low, high
    for curve in panel if _has_intervals(panel) else []:
        most = math.inf if is_sparse(curve) or curve.points else _MOST_BAND * air
        bottom = min(bottom, max(min(_finite(curve.low), default=low), low - most))
        top = max(top, min(max(_finite(curve.high), default=high), high + most))
    return bottom - 0.05 * air, top + 0.05 * air


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def row_style(number: int) -> tuple[str, object, str]:
    """A row's colour, dashes and marker; the last two differ where colours come again."""
    again, colour = divmod(number, len(COLORS))
    return COLORS[colour], _DASHES[again % len(_DASHES)], _MARKERS[again % len(_MARKERS)]


def row_legend(
    figure: "Figure",
    rows: Sequence[str],
    columns: int,
    *,
    longest: int = 80,
    markersize: float = 4,
    band: str = "",
    lone: Sequence[str] = (),
) -> None:
    """Draw a legend of the rows below the panels; the dots of those in `lone` have no line."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = []
    for number, row in enumerate(rows):
        colour, dashes, marker = row_style(number)
        style: Any = {"linestyle": "none" if row in lone else dashes, "color": colour}
        handles.append(Line2D([], [], marker=marker, markersize=markersize, **style))
    if band:
        handles.append(Patch(color=COLORS[0], alpha=0.15, linewidth=0))
    names = [short(row, longest) for row in [*rows, *([band] if band else [])]]
    figure.legend(handles, names, loc="outside lower left", ncols=columns)


def short(name: str, longest: int = 80) -> str:
    """A name cut to `longest` letters; `$` is escaped, since it would begin mathematics."""
    cut = name if len(name) <= longest else f"{name[: longest - 1]}…"
    return cut.replace("$", r"\$")


def panel_svg(
    draw: Callable[["Axes"], None], name: str
) -> tuple[Markup, tuple[float, float, float, float]]:
    """A panel as SVG to stand inside an HTML page, and the limits (x0, x1, y0, y1) of its axes.

    The axes fill `SVG_BOX`. Colours are the CSS variables --c0 to --c9, --faint, --strong and
    --rule. `name` keeps ids apart from those of other panels.
    """
    from matplotlib.ticker import MaxNLocator

    width, height = SVG_SIZE
    left, top, right, bottom = SVG_BOX
    box = (left / width, 1 - bottom / height, (right - left) / width, (bottom - top) / height)
    with saved_figure((width / 72, height / 72)) as figure:
        figure.set_layout_engine("none")  # equal places in all panels, and drawn fast
        axes = figure.add_axes(box)
        draw(axes)
        axes.set(title="", xlabel="", ylabel="")
        axes.ticklabel_format(useOffset=False, axis="y")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
        axes.xaxis.grid(visible=False)
        axes.spines.left.set_visible(False)
        axes.tick_params(length=0, pad=7)
        limits = (*axes.get_xlim(), *axes.get_ylim())
        return svg_for_html(figure, name), limits


def plots(
    curves: Sequence[Curve],
    rows: Sequence[str],
    digits: Mapping[str, int] | None = None,
    ticks: Sequence[float] = (),
) -> list[Plot]:
    """A plot for each metric; what belongs to one row has `data-row` with its number in `rows`.

    `digits` are of the numbers of a label, 4 for others; `ticks` as in `draw_figure`.
    """
    panels = by_metric([curve for c in curves if (curve := finite_curve(c)).x])
    return [_plot(panel, rows, digits or {}, ticks, f"p{i}") for i, panel in enumerate(panels)]


def _plot(
    panel: Sequence[Curve],
    rows: Sequence[str],
    digits: Mapping[str, int],
    ticks: Sequence[float],
    name: str,
) -> Plot:
    label = panel[0].label or panel[0].metric
    own = digits.get(label, 4)
    means = [mean for curve in panel for mean in curve.mean]
    low, high = min(means), max(means)
    reach = FAR * (high - low or max(abs(high) * 0.1, 1e-6))  # more would make the curves flat
    papers = [math.nan if c.paper is None else c.paper for c in panel]
    is_far = [paper < low - reach or paper > high + reach for paper in papers]
    pairs = [*zip(panel, is_far, strict=True)]
    near = [replace(curve, paper=None) if far else curve for curve, far in pairs]

    def draw(axes: "Axes") -> None:
        draw_panel(axes, near, rows, tag_rows=True)
        x = [x for curve in panel for x in curve.x]
        low, high = (min(x), max(x)) if max(x) > min(x) else (min(x) - 1, max(x) + 1)
        air = 0.04 * (high - low) if any(map(is_sparse, panel)) else 0.0
        axes.set_xlim(low - air, high + air)
        _mark_iterations(axes, ticks)

    def shown(values: Sequence[float]) -> list[float | None]:
        """In six digits: enough for any tooltip."""
        return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values]

    lines = [
        {"row": rows.index(c.row), "x": c.x}
        | {"mean": shown(c.mean), "low": shown(c.low), "high": shown(c.high)}
        for c in panel
    ]
    svg, limits = panel_svg(draw, name)
    spoken = [f"{c.row} from {c.mean[0]:.{own}f} to {c.mean[-1]:.{own}f}" for c in panel]
    outside = [f"{c.row} {c.paper:.{max(0, own - 1)}f}" for c, far in pairs if far]
    return Plot(
        label=label,
        unit=metric_unit(panel[0].metric),
        svg=svg,
        spoken=f"{label} over iterations: {'; '.join(spoken)}.",
        far=[*dict.fromkeys(outside)],
        data={"digits": own, "limits": limits, "lines": lines},
    )


def finite_curve(curve: Curve) -> Curve:
    """A curve without the points, and without the paper's value, that are not finite."""
    kept = [math.isfinite(y) for y in curve.mean]
    names = ("x", "mean", "low", "high", "points")
    lists: dict[str, Any] = {name: [*compress(getattr(curve, name), kept)] for name in names}
    known = curve.paper is not None and math.isfinite(curve.paper)
    return replace(curve, **lists, paper=curve.paper if known else None)
