"""What figures with matplotlib share: style, panels, and SVG for HTML pages.

`saved_figure` and `add_panels` make a figure of small multiples without pyplot, so that no display
and no global state is needed.
"""

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from rlfactory.run.atomic_write import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure

COLORS = (
    *("#3465a4", "#d9822b", "#3a8f5c", "#b5474e", "#7a5ea8"),
    *("#8b6b4f", "#c76fa0", "#6b7078", "#97922f", "#3c9fb0"),
)
"""The color cycle: one color for each line of a panel."""
COLUMNS = 3
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9a9ca3",
    "axes.labelcolor": "#55575e",
    "xtick.color": "#55575e",
    "ytick.color": "#55575e",
    "axes.grid": True,
    "grid.color": "#e8e8ec",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
}
"""The matplotlib rc parameters of every figure."""
CSS_COLORS = {
    **{color: f"var(--c{number})" for number, color in enumerate(COLORS)},
    **{"#55575e": "var(--faint)", "#9a9ca3": "var(--strong)", "#e8e8ec": "var(--rule)"},
    "#000000": "var(--ink)",
}
"""The CSS variables of pages that stand for the colors of figures."""
# the same SVG from the same numbers: no random ids, and text as text
_REPRODUCIBLE_SVG = {"svg.hashsalt": "rlfactory", "svg.fonttype": "none"}

Panel = Callable[["Axes"], None]
"""Draws one panel of a figure."""


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


@contextmanager
def saved_figure(
    size: tuple[float, float],
    *paths: Path,
    style: Mapping[str, Any] = STYLE,
    pad: float = 0.12,
) -> Iterator["Figure"]:
    """Yield a new figure to draw in, and save it to each of `paths` at the end.

    Args:
        size: width and height in inches.
        paths: where to save it; the ending, `.png` or `.svg`, says as what.
        style: matplotlib rc parameters.
        pad: inches between panels, and around them.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context({**style, **_REPRODUCIBLE_SVG}):
        layout = ConstrainedLayoutEngine(w_pad=pad, h_pad=pad)
        figure = Figure(figsize=size, layout=layout)
        FigureCanvasAgg(figure)
        yield figure
        for path in paths:
            # without it an SVG holds the date; a PNG has no such key
            metadata = {"Date": None} if path.suffix == ".svg" else None
            kind = path.suffix[1:]
            with new_file(path) as file:
                figure.savefig(file, dpi=140, facecolor="white", format=kind, metadata=metadata)
            figure.set_layout_engine("none")  # the first save has settled it, which is slow


def add_panels(figure: "Figure", panels: Sequence[Panel], ticks: Sequence[float] = ()) -> None:
    """Draw panels row by row, each over the iterations; the rows are filled evenly, without holes.

    Where there are at least three `ticks`, they mark the iterations of every panel.
    """
    from matplotlib.ticker import FixedLocator, MaxNLocator

    counts = panel_rows(len(panels))
    width = math.lcm(*counts)
    grid = figure.add_gridspec(len(counts), width)
    places = [(row, n, count) for row, count in enumerate(counts) for n in range(count)]
    for draw, (row, n, count) in zip(panels, places, strict=True):
        step = width // count
        axes = figure.add_subplot(grid[row, n * step : (n + 1) * step])
        draw(axes)
        limits = axes.get_xlim()
        axes.set_xlabel("iteration")
        shown = thinned(ticks)
        if len(shown) >= 3:
            axes.xaxis.set_major_locator(FixedLocator(shown))
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
        axes.ticklabel_format(useOffset=False, axis="y")
        axes.set_xlim(*limits)


def draw_dots(
    axes: "Axes",
    x: Sequence[float],
    mean: Sequence[float],
    ends: tuple[Sequence[float], Sequence[float]] | None = None,
    **style: Any,
) -> "ErrorbarContainer":
    """Draw markers with their intervals, given by their lower and upper ends, as error bars."""
    reach = None
    if ends is not None:
        reach = np.maximum([np.subtract(mean, ends[0]), np.subtract(ends[1], mean)], 0)
    return axes.errorbar(x, mean, yerr=reach, **style)


def panel_rows(count: int) -> list[int]:
    """How many of `count` panels each row has, at most `COLUMNS`, as even as can be."""
    rows = -(-count // COLUMNS)
    return [count // rows + (row < count % rows) for row in range(rows)]


def panel_grid(count: int) -> tuple[int, int]:
    """The most columns, and the rows, of `count` panels."""
    rows = panel_rows(count)
    return max(rows), len(rows)


def thinned(ticks: Sequence[float], most: int = 9) -> list[float]:
    """At most `most` of the ticks, evenly chosen, the first one included."""
    step = max(1, -(-(len(ticks) - 1) // (most - 1)))
    return [*ticks[::step]]


@contextmanager
def placed_panel(
    draw: Panel,
    size: tuple[float, float],
    box: tuple[float, float, float, float],
    ticks: Sequence[float] = (),
) -> Iterator[tuple["Figure", "Axes"]]:
    """A figure of one panel whose axes have a fixed place, which is drawn fast and equal in all.

    Args:
        size: width and height in inches.
        box: left, bottom, width and height of the axes, as shares.
    """
    with saved_figure(size) as figure:
        add_panels(figure, [draw], ticks=ticks)
        figure.set_layout_engine("none")
        (axes,) = figure.axes
        axes.set_position(box)
        yield figure, axes


def svg_for_html(figure: "Figure", name: str) -> Markup:
    """A figure as an SVG element of a page: CSS colors, and ids that are unique in the page.

    `name` keeps ids apart from those of other figures.
    """
    written = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(written, format="svg", transparent=True, metadata=nothing)
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<defs>\s*<style.*?</defs>", "", svg, flags=re.DOTALL)  # it styles all elements
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r'id="row-(\d+)"', r'data-row="\1"', svg)
    svg = re.sub(r'((?: id="|href="#|url\(#))', rf"\g<1>{name}-", svg)
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda m: CSS_COLORS.get(m[0], m[0]), svg)
    return Markup(" ".join(svg.split()))  # words in an SVG are escaped
