"""What a survey looks like: four figures in PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rlfactory.inspection.attribution import Attribution, part_names
from rlfactory.inspection.heat import (
    HEAT_STYLE,
    colour_limit,
    colour_scale,
    factor,
    heat,
    page,
    plain,
)
from rlfactory.inspection.lens import likelier
from rlfactory.inspection.names import END, token_name
from rlfactory.inspection.survey import DirectionView, Survey
from rlfactory.run.curves import STYLE
from rlfactory.run.format import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BASE, _TUNED = "#8a8d93", "#d9822b"
_WRITTEN = 9  # columns of the lens that leave room for numbers
_SHOWN, _PROMPT = 40, 60  # tokens of a sample, and characters of a prompt, that are shown


def draw_lens(survey: Survey, tokenizer: Any, path: Path) -> None:
    """How much likelier each token became after each layer: at prompts' ends, and all along."""
    ends = survey.base.ends
    panels = {
        "Where the prompt ends": likelier(survey.base.lens[ends], survey.tuned.lens[ends]),
        "All along the response": likelier(survey.base.lens, survey.tuned.lens),
    }
    names, layers = _names(survey, tokenizer), _after(survey)
    written = len(layers) <= _WRITTEN
    cell = 0.62 if written else 0.36
    with page(HEAT_STYLE, (2.8 + 2 * cell * len(layers), 1.4 + 0.3 * len(names)), path) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        limit = colour_limit(*panels.values())
        for ax, (title, values) in zip(axes, panels.items(), strict=True):
            image = heat(ax, values.T, names, layers, limit, factor if written else None)
            ax.axhline(len(names) / 2 - 0.5, color="#55575e", linewidth=1)
            ax.set_title(title)
            ax.set_xlabel("after layer")
        for height, group in ((0.75, "rose"), (0.25, "fell")):
            _beside(axes[1], height, group)
        colour_scale(figure, image, axes, "tuned / base probability, powers of 2")
        figure.suptitle("Logit lens: the tokens that tuning promoted and demoted most")


def draw_samples(survey: Survey, tokenizer: Any, path: Path) -> None:
    """How much likelier each token of the best and of the worst sample became, by layer."""
    scored = survey.scores.nan_to_num(float(survey.scores.nanmean()))
    shown = {"Best": int(scored.argmax()), "Worst": int(scored.argmin())}
    change = (survey.tuned.next - survey.base.next) / torch.log(torch.tensor(2.0))
    rows = {name: change[survey.base.sample == i][:_SHOWN] for name, i in shown.items()}
    width = max(map(len, rows.values()))
    layers = _after(survey)
    with page(HEAT_STYLE, (2.4 + 0.36 * width, 3.2 + 0.5 * len(layers)), path) as figure:
        axes = figure.subplots(2, 1)
        limit = colour_limit(*rows.values())
        for ax, (name, values) in zip(axes, rows.items(), strict=True):
            i = shown[name]
            ids = survey.texts.ids[i][survey.texts.read[i]][:_SHOWN].tolist()
            tokens = [token_name(tokenizer, token) for token in ids]
            image = heat(ax, values.T.flip(0), layers[::-1], tokens, limit, None, turned=True)
            ax.set_xlim(-0.5, width - 0.5)
            ax.set_ylabel("after layer")
            prompt = _prompt(survey, tokenizer, i)
            score = number(float(scored[i]))
            ax.set_title(f'{name} sample of the base, score {score}, after "{prompt}"')
        colour_scale(figure, image, axes, "tuned / base probability, powers of 2")


def draw_attribution(survey: Survey, tokenizer: Any, path: Path) -> None:
    """Which parts write the logits: means over risen and fallen tokens, then each token."""
    base, tuned = (found.parts()[0].T for found in survey.attributions())  # [2 K, parts]
    names, parts = _names(survey, tokenizer), [*map(_short, part_names(_depth(survey)))]
    half = len(names) // 2
    size = (3.6 + 0.42 * len(parts), 4.6 + 0.3 * len(names))
    with page(STYLE, size, path) as figure:
        ratios = [1, 1, 0.13 * len(names) + 0.4]
        top, middle, bottom = figure.subplots(3, 1, height_ratios=ratios)
        _pairs(top, "Tokens that rose", parts, base[:half].mean(0), tuned[:half].mean(0))
        _pairs(middle, "Tokens that fell", parts, base[half:].mean(0), tuned[half:].mean(0))
        change = tuned - base
        whole = torch.cat([change, change.sum(1, keepdim=True)], dim=1)
        image = heat(bottom, whole, names, [*parts, "sum"], colour_limit(whole), plain)
        bottom.grid(visible=False)
        bottom.axhline(half - 0.5, color="#55575e", linewidth=1)
        bottom.axvline(len(parts) - 0.5, color="#55575e", linewidth=1)
        bottom.set_title("Tuned less base, by token")
        bottom.set_xlabel("embeddings, attention (A) and MLP (M) of each layer, constant")
        colour_scale(figure, image, [top, middle, bottom], "tuned less base, logit")
        figure.suptitle("Direct attribution of the logits, less the vocabulary's mean")


def draw_direction(view: DirectionView, path: Path) -> None:
    """What heads and MLPs write along the direction from bad to good samples."""
    panels = {"Good less bad samples, base": view.gap, "Tuned less base, same texts": view.shift}
    layers, columns = _by_layer(view.gap).shape
    heads = [str(i) for i in range(1, columns)]
    size = (3.4 + 0.95 * columns, 1.9 + 0.42 * layers)
    with page(HEAT_STYLE, size, path) as figure:
        for ax, (title, found) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            values = _by_layer(found)
            names = [str(i) for i in range(layers, 0, -1)]
            image = heat(ax, values.flip(0), names, [*heads, "MLP"], colour_limit(values), plain)
            ax.axvline(columns - 1.5, color="#55575e", linewidth=1)
            ax.set_title(f"{title}: {found.total().item():+.2f}")
            ax.set_xlabel("head")
            ax.set_ylabel("layer")
            colour_scale(figure, image, [ax], "share of the gap")
        figure.suptitle("What each part writes along the direction from bad to good samples")


def _by_layer(found: Attribution) -> Tensor:
    """Heads, then the MLP `[L, H + 1]`."""
    heads, mlp = found.heads.mean(0)[..., 0], found.mlp.mean(0)
    return torch.cat([heads, mlp], dim=1)


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


def _depth(survey: Survey) -> int:
    return survey.base.parts.mlp.shape[1]


def _after(survey: Survey) -> list[str]:
    return ["none", *(str(i) for i in range(1, _depth(survey) + 1))]


def _prompt(survey: Survey, tokenizer: Any, sample: int) -> str:
    ids = survey.texts.ids[sample]
    end = int(survey.texts.ends[sample].nonzero())
    text = "".join(token_name(tokenizer, i) for i in ids[: end + 1].tolist())
    return text.removeprefix(END).replace("␣", " ").strip()[-_PROMPT:]


def _short(part: str) -> str:
    shorter = {"embeddings": "emb", "constant": "const", "attention ": "A", "MLP ": "M"}
    for long, short in shorter.items():
        part = part.replace(long, short)
    return part


def _beside(ax: "Axes", height: float, text: str) -> None:
    """What a group of rows is."""
    ax.annotate(
        text,
        (1, height),
        xycoords="axes fraction",
        xytext=(5, 0),
        textcoords="offset points",
        rotation=270,
        va="center",
        fontweight="bold",
    )
