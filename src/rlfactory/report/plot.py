"""Common parts of figures with matplotlib: style, panels, and SVG for HTML pages.

Figures are made without pyplot, so that no display and no global state is needed.
"""

import io
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rlfactory.run.atomic_write import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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


@contextmanager
def saved_figure(
    size: tuple[float, float],
    *paths: Path,
    style: Mapping[str, Any] = STYLE,
    pad: float = 0.12,
) -> Iterator["Figure"]:
    """Yield a new figure to draw in, and save it to each of `paths` at the end: their ending says
    as what. `size`, and `pad` between and around panels, are in inches.
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
            kind = path.suffix[1:]
            # without it an SVG holds the date; a PNG has no such key
            metadata = {"Date": None} if kind == "svg" else None
            with new_file(path) as file:
                figure.savefig(file, dpi=140, facecolor="white", format=kind, metadata=metadata)
            figure.set_layout_engine("none")  # the first save has settled it, which is slow


def panel_rows(count: int) -> list[int]:
    """How many of `count` panels each row has, at most `COLUMNS`, as even as can be."""
    rows = -(-count // COLUMNS)
    return [count // rows + (row < count % rows) for row in range(rows)]


def panel_axes(figure: "Figure", count: int) -> Iterator["Axes"]:
    """The axes of `count` panels, row by row; the rows are filled evenly, without holes."""
    counts = panel_rows(count)
    width = math.lcm(*counts)
    grid = figure.add_gridspec(len(counts), width)
    for row, columns in enumerate(counts):
        step = width // columns
        for n in range(columns):
            yield figure.add_subplot(grid[row, n * step : (n + 1) * step])


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
