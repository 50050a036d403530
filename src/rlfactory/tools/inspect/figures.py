"""The three figures of a survey, in PNG.

The colours of a figure have one scale for all of its panels, which reaches as far as the largest
value, so that equal colours are equal values and none is saturated.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rlfactory.report.plot import STYLE, saved_figure
from rlfactory.tools.inspect.analysis import Survey
from rlfactory.tools.inspect.attribution import block_names, by_block, by_layer, likelier
from rlfactory.tools.inspect.hooked_model import token_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEAT_STYLE = STYLE | {"axes.grid": False, "axes.spines.left": False, "axes.spines.bottom": False}
_MOST_WRITTEN = 200  # cells with a number in them
_BAR = 0.25  # inches
_LETTERS = 12  # to an inch of a subtitle

Write = Callable[[float], str]
_BASE, _TUNED = "#8a8d93", "#d9822b"
_WRITTEN = 9  # columns of the lens that leave room for numbers


def heat(
    ax: "Axes",
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    limit: float,
    write: Write | None,
) -> Any:
    """Draw `values` `[rows, columns]`, white at 0, with numbers where there is room for them."""
    image = ax.imshow(values.numpy(), cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xticks(range(len(columns)), columns)
    ax.tick_params(length=0)
    if write is not None and values.numel() <= _MOST_WRITTEN:
        for (y, x), value in np.ndenumerate(values.numpy()):
            color = "white" if abs(value) > 0.6 * limit else "#33353b"
            text = write(value)
            ax.text(x, y, text, ha="center", va="center", fontsize=7, color=color)
    return image


def colour_scale(
    figure: "Figure", image: Any, axes: Any, label: str, write: Write | None = None
) -> None:
    """Add a colour bar with a label; `write` formats its values as those of the cells."""
    bar = figure.colorbar(
        image, ax=axes, label=label, fraction=_BAR / figure.get_figwidth(), aspect=30, pad=0.02
    )
    bar.outline.set_visible(False)
    if write is not None:
        bar.ax.yaxis.set_major_formatter(lambda value, _: write(value))


def colour_limit(*values: Tensor) -> float:
    """The largest absolute value."""
    return max(float(torch.cat([v.flatten() for v in values]).abs().max()), 1e-6)


def factor(power: float) -> str:
    """A power of 2 as a factor: `×3.5`."""
    times: float = 2**power
    return f"×{times:.2g}" if times < 99.5 else f"×{times:.0f}"


def plain(value: float) -> str:
    """Two decimals, and `0` for what rounds to zero."""
    text = f"{value:.2f}"
    return "0" if float(text) == 0 else text


def draw_lens(survey: Survey, tokenizer: Any, path: Path, subtitle: str = "") -> None:
    """Logit lens: the factor by which each token's probability rose, after each layer."""
    ends = survey.base.ends
    panels = {
        "Where the prompt ends": likelier(survey.base.lens[ends], survey.tuned.lens[ends]),
        "All along the response": likelier(survey.base.lens, survey.tuned.lens),
    }
    names = _names(survey, tokenizer)
    layers = ["none", *map(str, range(1, survey.layers + 1))]
    written = len(layers) <= _WRITTEN
    cell = 0.62 if written else 0.36
    with saved_figure(
        (2.8 + 2 * cell * len(layers), 1.4 + 0.3 * len(names)), path, style=HEAT_STYLE, pad=0.1
    ) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        limit = colour_limit(*panels.values())
        for ax, (title, values) in zip(axes, panels.items(), strict=True):
            image = heat(ax, values.T, names, layers, limit, factor if written else None)
            ax.axhline(len(names) / 2 - 0.5, color="#55575e", linewidth=1)
            ax.set_title(title)
            ax.set_xlabel("after layer")
        for height, group in ((0.75, "rose"), (0.25, "fell")):  # beside its rows
            where: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
            where |= {"xytext": (5, 0), "rotation": 270, "va": "center", "fontweight": "bold"}
            axes[1].annotate(group, (1, height), **where)
        colour_scale(figure, image, axes, "tuned / base probability", factor)
        _title(figure, "Logit lens: the tokens that tuning promoted and demoted most", subtitle)


def draw_attribution(survey: Survey, tokenizer: Any, path: Path, subtitle: str = "") -> None:
    """Direct attribution: means over risen and fallen tokens, then each token."""
    base, tuned = (by_block(p, survey.layers).T for p in survey.attributions())  # [2 K, parts]
    names, parts = _names(survey, tokenizer), [*map(_short, block_names(survey.layers))]
    half = len(names) // 2
    size = (3.6 + 0.42 * len(parts), 4.6 + 0.3 * len(names))
    with saved_figure(size, path, style=STYLE, pad=0.1) as figure:
        ratios = [1, 1, 0.13 * len(names) + 0.4]
        top, middle, bottom = figure.subplots(3, 1, height_ratios=ratios)
        _pairs(top, "Tokens that rose", parts, base[:half].mean(0), tuned[:half].mean(0))
        _pairs(middle, "Tokens that fell", parts, base[half:].mean(0), tuned[half:].mean(0))
        change = tuned - base
        table = torch.cat([change, change.sum(1, keepdim=True)], dim=1)
        image = heat(bottom, table, names, [*parts, "sum"], colour_limit(table), plain)
        bottom.grid(visible=False)
        bottom.axhline(half - 0.5, color="#55575e", linewidth=1)
        bottom.axvline(len(parts) - 0.5, color="#55575e", linewidth=1)
        bottom.set_title("Tuned less base, by token")
        bottom.set_xlabel("embeddings, attention (A) and MLP (M) of each layer, constant")
        colour_scale(figure, image, [top, middle, bottom], "tuned less base, logit")
        _title(figure, "Direct attribution of the logits, less the vocabulary's mean", subtitle)


def draw_direction(survey: Survey, path: Path, subtitle: str = "") -> None:
    """Contributions of heads and MLPs along the direction from bad to good samples."""
    assert survey.direction is not None
    panels = {
        "Good less bad samples, base": survey.direction.gap,
        "Tuned less base, same texts": survey.direction.shift,
    }
    layers, heads = survey.layers, survey.heads
    # [L, H + 1]: heads and MLP, without the bias
    own = [by_layer(parts, layers) for parts in panels.values()]
    values = [torch.cat([one[:, :-2], one[:, -1:]], 1).flip(0) for one in own]
    rows = [str(i) for i in range(layers, 0, -1)]
    columns = [*map(str, range(1, heads + 1)), "MLP"]
    size = (3.4 + 0.95 * len(columns), 1.9 + 0.42 * layers)
    with saved_figure(size, path, style=HEAT_STYLE, pad=0.1) as figure:
        axes = figure.subplots(1, 2)
        for ax, (title, parts), shown in zip(axes, panels.items(), values, strict=True):
            image = heat(ax, shown, rows, columns, colour_limit(*values), plain)
            ax.axvline(heads - 0.5, color="#55575e", linewidth=1)
            ax.set_title(f"{title}: {parts.sum():+.2f}")
            ax.set_xlabel("head")
            ax.set_ylabel("layer")
        colour_scale(figure, image, axes, "share of the gap between bad and good", plain)
        _title(figure, "What each part writes along the direction from bad to good", subtitle)


def _title(figure: "Figure", title: str, subtitle: str) -> None:
    """A title, and a line below it that says of which run and which reward."""
    lines = [title, *fill(subtitle, int(_LETTERS * figure.get_figwidth())).splitlines()]
    figure.suptitle("\n".join(lines).replace("$", r"\$"), fontsize=10)


def _pairs(ax: "Axes", title: str, parts: Sequence[str], base: Tensor, tuned: Tensor) -> None:
    at = np.arange(len(parts))
    for shift, values, color, label in ((-0.2, base, _BASE, "base"), (0.2, tuned, _TUNED, "tuned")):
        named = f"{label}, sum {values.sum():.2f}"
        ax.bar(at + shift, values.numpy(), width=0.38, color=color, label=named)
    ax.axhline(0, color="#9a9ca3", linewidth=0.8)
    ax.set_xticks(at, parts)
    ax.set_xlim(-0.5, len(parts) + 0.5)  # above the columns of the heat map, which has a sum
    ax.set_title(title)
    ax.set_ylabel("logit")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.25 * (high - low))
    ax.legend(loc="upper right", ncols=2)


def _names(survey: Survey, tokenizer: Any) -> list[str]:
    return [token_name(tokenizer, i) for i in survey.ids.tolist()]


def _short(part: str) -> str:
    word, _, layer = part.partition(" ")
    return {"embeddings": "emb", "constant": "const", "attention": "A", "MLP": "M"}[word] + layer
