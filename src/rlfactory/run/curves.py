"""The course of training in one figure: small multiples drawn from metrics.jsonl."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlfactory.run.metrics import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _ORANGE, _GREEN, _GREY = "#3465a4", "#d9822b", "#3a8f5c", "#8a8d93"
_COLUMNS = 3
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

Series = tuple[list[float], list[float]]
Panel = Callable[["Axes"], None]


def draw_curves(metrics: Sequence[Record], path: Path, *, reward: str | None = None) -> bool:
    """Write a PNG with a panel for whatever was measured; False if there was nothing to draw.

    `reward` is the score that trains, by default the first one logged. An evaluation's interval is
    drawn where `eval/<reward>/low` and `eval/<reward>/high` stand beside its mean.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    panels = _panels(metrics, reward or _first_reward(metrics))
    if not panels:
        return False
    span = _span(metrics)
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
        figure = Figure(figsize=(4.1 * columns, 2.9 * rows), layout=layout)
        FigureCanvasAgg(figure)
        for i, draw in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, i)
            draw(axes)
            axes.set_xlabel("iteration")
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
            axes.ticklabel_format(useOffset=False)
            axes.set_xlim(*span)
        figure.savefig(path, dpi=140, facecolor="white")
    return True


def _panels(metrics: Sequence[Record], reward: str | None) -> list[Panel]:
    panels: list[Panel] = []
    if reward is not None:
        panels.append(lambda axes: _reward(axes, metrics, reward))
    lines = [
        ("KL to the reference", "KL", ["kl/reference"]),
        ("Diversity", "mean pairwise distance", ["diversity/pairwise", "eval/diversity"]),
        ("Clipped share", "fraction of ratios", ["ratio/clip_fraction"]),
        ("Importance ratio", "mean ratio", ["ratio/mean"]),
        ("Loss", "loss", ["loss/policy", "loss/total"]),
        ("Gradient norm", "norm before clipping", ["grad/norm"]),
    ]
    for title, label, names in lines:
        found = {name: series for name in names if (series := _series(metrics, name))[0]}
        if found:
            panels.append(_line_panel(title, label, found))
    if any(_series(metrics, f"time/{phase}")[0] for phase in _PHASES):
        panels.append(lambda axes: _time(axes, metrics))
    return panels


def _reward(axes: "Axes", metrics: Sequence[Record], name: str) -> None:
    x, mean = _series(metrics, f"reward/{name}/mean")
    if x:
        axes.plot(x, mean, _marker(x), color=_BLUE, markersize=4, label="training")
    band = _aligned(metrics, [f"reward/{name}/mean", f"reward/{name}/group_std"])
    if len(band) > 1:
        at = [i for i, _, _ in band]
        bottom, top = ([m + sign * s for _, m, s in band] for sign in (-1, 1))
        label = "± std within a group"
        axes.fill_between(at, bottom, top, color=_BLUE, alpha=0.13, linewidth=0, label=label)
    at, evaluated = _series(metrics, f"eval/{name}/mean")
    if at:
        axes.plot(at, evaluated, "o-", color=_ORANGE, markersize=5, label="held-out prompts")
    for i, low, high in _aligned(metrics, [f"eval/{name}/low", f"eval/{name}/high"]):
        axes.plot([i, i], [low, high], color=_ORANGE, linewidth=2.2, alpha=0.7)
    axes.set_title(f"Reward: {name}")
    axes.set_ylabel("score")
    axes.legend(loc="best")


def _line_panel(title: str, label: str, found: dict[str, Series]) -> Panel:
    def draw(axes: "Axes") -> None:
        for (name, (x, y)), color in zip(found.items(), (_BLUE, _ORANGE), strict=False):
            line = "o-" if name.startswith("eval/") else _marker(x)
            axes.plot(x, y, line, color=color, markersize=5, label=name)
        axes.set_title(title)
        axes.set_ylabel(label)
        if len(found) > 1:
            axes.legend(loc="best")

    return draw


_PHASES = {"sample": _BLUE, "score": _GREEN, "learn": _ORANGE}


def _time(axes: "Axes", metrics: Sequence[Record]) -> None:
    rows = _aligned(metrics, [f"time/{phase}" for phase in _PHASES], missing=0.0)
    at, *parts = zip(*rows, strict=True)
    below = [0.0] * len(at)
    for (phase, color), seconds in zip(_PHASES.items(), parts, strict=True):
        axes.bar(at, seconds, bottom=below, width=1.0, color=color, linewidth=0, label=phase)
        below = [b + s for b, s in zip(below, seconds, strict=True)]
    axes.set_ylim(0, 1.3 * max(below) or 1.0)
    axes.set_title("Time per iteration")
    axes.set_ylabel("seconds")
    axes.legend(loc="upper center", ncols=3)


def _span(metrics: Sequence[Record]) -> tuple[float, float]:
    """The same iterations in every panel, with room for the outermost bar or dot."""
    at = [i for record in metrics if (i := record["iteration"]) is not None]
    air = max(0.6, 0.02 * (max(at) - min(at)))
    return min(at) - air, max(at) + air


def _marker(x: Sequence[float]) -> str:
    """A line through one point cannot be seen, a dot can."""
    return "-" if len(x) > 1 else "o"


def _series(metrics: Sequence[Record], name: str) -> Series:
    rows = _aligned(metrics, [name])
    return [row[0] for row in rows], [row[1] for row in rows]


def _aligned(
    metrics: Sequence[Record], names: Sequence[str], missing: float | None = None
) -> list[tuple[float, ...]]:
    """(iteration, value, ...) of the records that have a finite value of every name.

    With `missing`, one is enough and that stands for the others.
    """
    rows = []
    for record in metrics:
        values = [record.get(name) for name in names]
        if any(value is not None for value in values):
            filled = [missing if value is None else value for value in values]
            iteration = record["iteration"]
            if iteration is not None and None not in filled:
                rows.append((iteration, *(value for value in filled if value is not None)))
    return rows


def _first_reward(metrics: Sequence[Record]) -> str | None:
    for record in metrics:
        for name in record:
            if found := re.fullmatch(r"(?:reward|eval)/(.+)/mean", name):
                return found[1]
    return None
