"""Heat maps with a colour for each sign, and the page that they stand on."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlfactory.run.curves import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEAT_STYLE = STYLE | {"axes.grid": False, "axes.spines.left": False, "axes.spines.bottom": False}
_MOST_WRITTEN = 200  # cells with a number in them
_BAR = 0.25  # inches

Write = Callable[[float], str]


@contextmanager
def page(style: dict[str, Any], size: tuple[float, float], path: Path) -> Iterator["Figure"]:
    """A figure that is saved at the end."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(style):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
        figure = Figure(figsize=size, layout=layout)
        FigureCanvasAgg(figure)
        yield figure
        figure.savefig(path, dpi=140, facecolor="white")


def heat(
    ax: "Axes",
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    limit: float,
    write: Write | None,
    *,
    turned: bool = False,
) -> Any:
    """Draw `values` `[rows, columns]`, white at 0, with numbers where there is room for them."""
    image = ax.imshow(values.numpy(), cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xticks(range(len(columns)), columns, rotation=90 if turned else 0)
    ax.tick_params(length=0)
    if write is not None and values.numel() <= _MOST_WRITTEN:
        for (y, x), value in _cells(values):
            color = "white" if abs(value) > 0.6 * limit else "#33353b"
            text = write(value)
            ax.text(x, y, text, ha="center", va="center", fontsize=7, color=color)
    return image


def _cells(values: Tensor) -> list[tuple[tuple[int, int], float]]:
    rows = values.tolist()
    return [((y, x), value) for y, row in enumerate(rows) for x, value in enumerate(row)]


def colour_scale(figure: "Figure", image: Any, axes: Any, label: str) -> None:
    """What the colours mean."""
    bar = figure.colorbar(
        image, ax=axes, label=label, fraction=_BAR / figure.get_figwidth(), aspect=30, pad=0.02
    )
    bar.outline.set_visible(False)


def colour_limit(*values: Tensor) -> float:
    """Colours reach as far as all but the outermost of the values."""
    sizes = torch.cat([v.flatten() for v in values]).abs()
    return max(float(sizes.quantile(0.98)), 1e-6)


def factor(power: float) -> str:
    """A power of 2 as people read it."""
    times: float = 2**power
    return f"×{times:.2g}" if times < 99.5 else f"×{times:.0f}"


def plain(value: float) -> str:
    """Two decimals, and no more than one digit for nothing."""
    text = f"{value:.2f}"
    return "0" if float(text) == 0 else text
