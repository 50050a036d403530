"""The plots of a run's page, as SVG elements."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from rlfactory.run.figures.curves import RunCurves
from rlfactory.run.figures.figure import COLORS, Panel, add_panels, saved_figure, svg_for_html
from rlfactory.run.scores import Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (4.4, 2.7)  # inches
BOX = (0.12, 0.165, 0.86, 0.68)  # left, bottom, width and height of the axes, as shares
ITERATION = "iteration"
_BEFORE, _AFTER = COLORS[7], COLORS[1]
_BINS = 16
_FEWEST = 4  # scores that make a histogram


@dataclass(frozen=True)
class Plot:
    """A plot as an SVG element, and the unit of its vertical axis."""

    svg: Markup
    unit: str


def curve_plots(curves: RunCurves) -> dict[str, Plot]:
    """Each panel of a run's curves by title."""
    panels = curves.panels()
    return {
        title: _plot(draw, f"c{number}", curves.ticks)
        for number, (title, draw) in enumerate(panels.items())
    }


def histogram(before: Scores, after: Scores, name: str) -> Plot | None:
    """The distribution of a score before and after training; None with too few scores."""
    values = [scores.values.get(name, np.array([])) for scores in (before, after)]
    known = [column[~np.isnan(column)] for column in values]
    if min(map(len, known)) < _FEWEST:
        return None
    together = np.concatenate(known)
    edges = np.linspace(together.min(), together.max() or 1.0, _BINS + 1)
    if edges[0] == edges[-1]:
        return None

    def draw(axes: "Axes") -> None:
        for column, color, label in zip(known, (_BEFORE, _AFTER), ("before", "after"), strict=True):
            mean = f"{label}, mean {column.mean():.3g}"
            axes.hist(column, edges.tolist(), color=color, alpha=0.45, label=mean, edgecolor="none")
            axes.axvline(float(column.mean()), color=color, linewidth=1.6)
        axes.set_ylabel("prompts")
        axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.985), ncols=2)

    return _plot(draw, "h", (), name)


def _plot(draw: Panel, name: str, ticks: Sequence[float], label: str = ITERATION) -> Plot:
    from matplotlib.ticker import MaxNLocator

    with saved_figure(SIZE) as figure:
        add_panels(figure, [draw], ticks=ticks)
        figure.set_layout_engine("none")  # a fixed place is drawn at once, and is the same in all
        (axes,) = figure.axes
        axes.set_position(BOX)
        axes.set_xlabel(label.replace("$", r"\$"))
        if label != ITERATION:
            axes.xaxis.set_major_locator(MaxNLocator(6))  # in place of one of whole numbers
        axes.locator_params(axis="y", nbins=5)
        if legend := axes.get_legend():
            for text in legend.get_texts():
                text.set_color("#55575e")
        unit = axes.get_ylabel()
        axes.set_ylabel("")  # stands beside the title
        return Plot(Markup(svg_for_html(figure, name)), unit)  # words in an SVG are escaped
