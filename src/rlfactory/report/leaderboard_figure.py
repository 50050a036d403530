"""The figure of a leaderboard: gains with intervals, performance profiles, curves over cost."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory.report.entry import Entry
from rlfactory.report.leaderboard import Place, efficiency, gains, profile, ranking, thresholds_of
from rlfactory.report.plot import row_style, short
from rlfactory.report.report import Curve
from rlfactory.run.figures.figure import panel_grid, saved_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Styles = Mapping[str, Mapping[str, Any]]
"""The colour and the dashes of each method, as matplotlib's lines take them."""


def draw_leaderboard(entries: Sequence[Entry], path: Path) -> Path:
    """Draw a panel of gains, one of performance profiles, and one of training for each task."""
    places = ranking(entries)
    styles = {place.method: _style(number) for number, place in enumerate(places)}
    by_task: dict[str, list[Curve]] = {}
    for curve in efficiency(entries):
        by_task.setdefault(curve.label, []).append(curve)
    panels = [
        partial(_draw_gains, places=places, styles=styles),
        partial(_draw_profiles, entries=entries, styles=styles),
        *(partial(_draw_efficiency, curves=own, styles=styles) for own in by_task.values()),
    ]
    columns, lines = panel_grid(len(panels))
    from matplotlib.lines import Line2D

    with saved_figure((max(4.3 * columns, 6.0), 3.2 * lines + 0.5), path) as figure:
        every = figure.subplots(lines, columns, squeeze=False).ravel()
        for axes, draw in zip(every, panels, strict=False):
            draw(axes)
        for axes in every[len(panels) :]:
            axes.set_axis_off()
        handles = [Line2D([], [], **style) for style in styles.values()]
        names = [short(method, 24) for method in styles]
        figure.legend(handles, names, loc="outside lower left", ncols=min(len(names), 4))
    return path


def _style(number: int) -> dict[str, Any]:
    colour, dashes, _ = row_style(number)
    return {"color": colour, "linestyle": dashes}


def _draw_gains(axes: "Axes", places: Sequence[Place], styles: Styles) -> None:
    for height, place in enumerate(reversed(places)):
        style = styles[place.method]
        axes.plot(place.iqm, height, "o", color=style["color"])
        if place.interval is not None:
            axes.plot(place.interval, [height, height], **style)
    axes.set_yticks(range(len(places)), [short(p.method, 24) for p in reversed(places)])
    axes.set_xlabel("gain")
    axes.set_title("Interquartile mean gain, 95 % interval")


def _draw_profiles(axes: "Axes", entries: Sequence[Entry], styles: Styles) -> None:
    thresholds = thresholds_of(entries)
    for method, style in styles.items():
        shares = profile(gains(entries, method).values(), thresholds)
        axes.plot(thresholds, shares, **style)
    axes.set_xlabel("gain")
    axes.set_title("Share of runs above a gain")


def _draw_efficiency(axes: "Axes", curves: Sequence[Curve], styles: Styles) -> None:
    for curve in curves:
        thousands = [x / 1000 for x in curve.x]
        style = styles[curve.row]
        axes.plot(thousands, curve.mean, **style)
        band = axes.fill_between(thousands, curve.low, curve.high, color=style["color"])
        band.set(alpha=0.12, linewidth=0)
    axes.set_xlabel("thousand forward passes")
    axes.set_ylabel("training reward, 95 % interval")
    axes.set_title(short(curves[0].label))
