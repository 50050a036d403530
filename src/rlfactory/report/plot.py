"""The curves of a report in one figure: a panel a metric, a line with its band a row."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlfactory.report.report import Curve
from rlfactory.run.curves import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "curves"
COLOURS = (
    *("#3465a4", "#d9822b", "#3a8f5c", "#b5474e", "#7a5ea8"),
    *("#8b6b4f", "#c76fa0", "#6b7078", "#97922f", "#3c9fb0"),
)
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)))
_COLUMNS = 3
_LEGEND_COLUMNS = 3
_LETTERS = 15  # to an inch of the legend
_HANDLE = 7  # letters' room
_MOST_BANDS = 8  # bands of more rows than that would be one grey
_MOST_BAND = 0.5  # of the lines' own span, above and below them


def draw_report(curves: Sequence[Curve], folder: Path) -> list[Path]:
    """Write curves.png and curves.svg; nothing of no curves."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = by_metric(curves)
    if not panels:
        return []
    rows = [*dict.fromkeys(curve.row for curve in curves)]
    columns = min(_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    width = max(4.3 * columns, 6.0)
    entries = _entries(rows, width)
    below = 0.22 * -(-len(rows) // entries)
    # the same file from the same numbers: no date, no random names
    with mpl.rc_context({**STYLE, "svg.hashsalt": "rlfactory", "svg.fonttype": "none"}):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
        figure = Figure(figsize=(width, 3.0 * lines + below), layout=layout)
        FigureCanvasAgg(figure)
        for number, panel in enumerate(panels, start=1):
            _draw(figure.add_subplot(lines, columns, number), panel, rows)
        _legend(figure, rows, entries)
        paths = [folder / f"{FILE}.png", folder / f"{FILE}.svg"]
        figure.savefig(paths[0], dpi=140, facecolor="white")
        figure.set_layout_engine("none")  # everything has its place, and finding it is slow
        figure.savefig(paths[1], facecolor="white", metadata={"Date": None})
    return paths


def by_metric(curves: Sequence[Curve]) -> list[list[Curve]]:
    """The curves of each panel."""
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        panels.setdefault((curve.metric, curve.label), []).append(curve)
    return [*panels.values()]


def _draw(axes: "Axes", panel: Sequence[Curve], rows: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    for curve in panel:
        colour, dashes = _look(rows.index(curve.row))
        axes.plot(curve.x, curve.mean, color=colour, linestyle=dashes)
        if curve.high != curve.mean and len(panel) <= _MOST_BANDS:
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    for paper in _papers(panel):
        claiming = [c.row for c in panel if c.paper == paper]
        colour = _look(rows.index(claiming[0]))[0] if len(claiming) == 1 else "#55575e"
        axes.axhline(paper, color=colour, linestyle=(0, (5, 3)), linewidth=1.1)
    axes.set_ylim(*_span(panel))
    axes.set_title(panel[0].label or panel[0].metric)
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.ticklabel_format(useOffset=False)


def _papers(panel: Sequence[Curve]) -> list[float]:
    """The paper's values, each once; of many rows none, since they would be a grid."""
    claimed = [c.paper for c in panel if c.paper is not None]
    return [*dict.fromkeys(claimed)] if len(panel) <= _MOST_BANDS else []


def _span(panel: Sequence[Curve]) -> tuple[float, float]:
    """Room for the lines and some for the bands: two seeds' would leave the lines no height."""
    lines = [*(y for c in panel for y in c.mean), *_papers(panel)]
    low, high = min(lines), max(lines)
    air = (high - low) or abs(high) or 1.0
    bottom = max(min(y for c in panel for y in c.low), low - _MOST_BAND * air)
    top = min(max(y for c in panel for y in c.high), high + _MOST_BAND * air)
    return min(bottom, low) - 0.05 * air, max(top, high) + 0.05 * air


def _look(number: int) -> tuple[str, object]:
    """A row's colour, and its dashes where there are more rows than colours."""
    again, colour = divmod(number, len(COLOURS))
    return COLOURS[colour], _DASHES[again % len(_DASHES)]


def _entries(rows: Sequence[str], width: float) -> int:
    """How many of the legend are beside each other on so many inches."""
    longest = max(len(short(row)) for row in rows) + _HANDLE
    return min(max(int(_LETTERS * width) // longest, 1), _LEGEND_COLUMNS)


def _legend(figure: object, rows: Sequence[str], columns: int) -> None:
    from matplotlib.lines import Line2D

    looks = [_look(number) for number in range(len(rows))]
    handles = [Line2D([], [], color=colour, linestyle=dashes) for colour, dashes in looks]
    place = {"loc": "outside lower left", "ncols": columns}
    figure.legend(handles, [short(row) for row in rows], **place)  # type: ignore[attr-defined]


def short(name: str, longest: int = 80) -> str:
    """A name that leaves room for others; `$` would be mathematics."""
    cut = name if len(name) <= longest else f"{name[: longest - 1]}…"
    return cut.replace("$", r"\$")
