"""The tables about V-GRPO's surrogate of docs/reference/results_diagnostics.md, and its figures.

python scripts/docs/surrogate.py   # draw the figures

The numbers are those that scripts/bench/surrogate.py stored. Intervals are 95 % bootstraps over
rollouts; the difference of two settings is taken on the same resampled rollouts.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlfactory.report.plot import COLORS, saved_figure
from rlfactory.report.statistics import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS = Path(__file__).parents[2] / "docs"
STORE = DOCS / "reference" / "surrogate.json"
TIMES_FIGURE = DOCS / "images" / "surrogate_times.png"
GRADIENTS_FIGURE = DOCS / "images" / "surrogate_gradients.png"
LABELS = {
    "full": "full",
    "own pairs": "own pairs of time and noise per sample",
    "not stratified": "not stratified",
    "not adaptive": "not adaptive (the square of the velocity's error)",
    "naive": "none of the three",
}
LOSSES = {
    "velocity": "squared error of the velocity",
    "x": "squared error of the clean sample",
    "x, adaptive": "the same, adaptive weight",
}
PUBLISHED = {"full": ("0.038", "0.128"), "naive": ("0.170", "0.230")}
PUBLISHED_FIT = {"naive": 0.406, "full": 0.328}
RESAMPLES = 2000
Statistic = Callable[[Sequence[Any]], float]


def interval(rollouts: Sequence[Any], statistic: Statistic) -> tuple[float, float]:
    """The bootstrap interval of a statistic of rollouts."""
    rng = np.random.default_rng(0)
    rows = rng.integers(len(rollouts), size=(RESAMPLES, len(rollouts)))
    drawn = [statistic([rollouts[i] for i in row]) for row in rows]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def cell(rollouts: Sequence[Any], statistic: Statistic, sign: str = "", digits: int = 3) -> str:
    """A statistic with its interval."""
    form = f"{{:{sign}.{digits}f}}"
    low, high = (form.format(x) for x in interval(rollouts, statistic))
    return f"{form.format(statistic(rollouts))} ({low} … {high})"


def variation_of(name: str, column: int) -> Statistic:
    """The mean coefficient of variation: within groups, column 0, or over all samples, 1."""
    return lambda found: float(np.mean([own["variation"][name][column] for own in found]))


def spread_of(name: str, column: int) -> Statistic:
    """The largest over the smallest value along time: of the means, column 0, or variances, 1."""

    def statistic(found: Sequence[Any]) -> float:
        curve = np.mean([own["times"][name][column] for own in found], axis=0)
        return float(curve.max() / curve.min())

    return statistic


def points(found: Sequence[Any], name: str) -> tuple[Array, Array]:
    """Surrogates and gradient norms of all samples."""
    surrogate, norm = np.concatenate([own["gradients"][name] for own in found], axis=1)
    return surrogate, norm


def quadratic_fit(x: Array, y: Array) -> tuple[Array, float]:
    """The coefficients of the least-squares parabola of y over x, and its R²."""
    coefficients = np.polyfit(x, y, 2)
    left = y - np.polyval(coefficients, x)
    return coefficients, float(1 - (left**2).sum() / ((y - y.mean()) ** 2).sum())


def fit_of(name: str) -> Statistic:
    """R² of the parabola through all samples."""
    return lambda found: quadratic_fit(*points(found, name))[1]


def fit_change(found: Sequence[Any]) -> float:
    """R² with all three reductions less that without."""
    return fit_of("full")(found) - fit_of("naive")(found)


def verdict(low: float, high: float) -> str:
    """What an interval of the change of R² says."""
    if high < 0:
        return "R² is lower with the three reductions, as published."
    if low > 0:
        return "R² is higher with the three reductions, contrary to the paper."
    return "Whether the three reductions lower R² is undecided."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table, its numbers to the right."""
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'---:|' * (len(heads) - 1)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def variation_lines(found: Sequence[Any]) -> Iterator[str]:
    """The coefficients of variation beside the published ones."""
    rows = [
        [label, *(cell(found, variation_of(name, c)) for c in (0, 1)), *PUBLISHED.get(name, "––")]
        for name, label in LABELS.items()
    ]
    yield from table(["", "within a group", "over all", "FLUX: within", "FLUX: over all"], rows)


def time_lines(found: Sequence[Any]) -> Iterator[str]:
    """Figure 1: how much mean and variance of the loss depend on the time."""
    count = len(found[0]["times"]["x"][0])
    yield f"**Figure 1.** Mean and variance of the loss over samples at {count} times, each sample"
    yield "with its own noise: of either curve the largest value over the smallest. The velocity's"
    yield "error is what the model was trained with; the clean sample's is t times as large. The"
    yield "notes have no numbers of the paper's figure: it shows that the size of the loss depends"
    yield "much on the time. Shaded is the range over rollouts.\n"
    rows = [
        [label, *(cell(found, spread_of(name, c), digits=1 - c) for c in (0, 1))]
        for name, label in LOSSES.items()
    ]
    yield from table(["loss", "mean, largest / smallest", "variance, largest / smallest"], rows)
    yield f"\n![Mean and variance of the loss over time](../images/{TIMES_FIGURE.name})"


def gradient_lines(found: Sequence[Any]) -> Iterator[str]:
    """Figure 2: how well a parabola of the surrogate predicts the norm of its gradient."""
    count = len(points(found, "full")[0])
    yield f"**Figure 2.** R² of a quadratic fit of the gradient's norm over the loss, of {count}"
    yield "samples with one draw of times and noise each. The gradient is that of the loss of one"
    yield "sample, before it is multiplied by an advantage. The notes lack the symbol of the"
    yield "paper's two numbers, read here as R², and do not say what a point of its figure is.\n"
    rows = [
        [LABELS[name], cell(found, fit_of(name)), f"{published:.3f}"]
        for name, published in PUBLISHED_FIT.items()
    ]
    published = PUBLISHED_FIT["full"] - PUBLISHED_FIT["naive"]
    rows.append(["difference", cell(found, fit_change, sign="+"), f"{published:+.3f}"])
    yield from table(["", "R²", "FLUX"], rows)
    yield f"\n{verdict(*interval(found, fit_change))}"
    yield f"\n![Gradient norm over loss](../images/{GRADIENTS_FIGURE.name})"


def text() -> str:
    """The tables of what is stored."""
    stored = read()
    found = stored["rollouts"]
    head = (
        f"{len(found)} rollouts of the base model on other prompts each, {stored['draws']} draws of"
        "\ntimes and noise; standard deviation over mean of a sample's loss. Intervals are 95 %\n"
        "bootstraps over rollouts. Measured by `scripts/bench/surrogate.py`; published for FLUX.\n"
    )
    parts = [variation_lines(found), time_lines(found), gradient_lines(found)]
    return "\n".join([head, "\n\n".join("\n".join(part) for part in parts)])


def read() -> dict[str, Any]:
    """What scripts/bench/surrogate.py stored."""
    content: dict[str, Any] = json.loads(STORE.read_text(encoding="utf-8"))
    return content


def draw_times(found: Sequence[Any]) -> None:
    """Figure 1: a panel of means and one of variances, a line a loss, with the rollouts' range."""
    with saved_figure((8.0, 3.4), TIMES_FIGURE) as figure:
        panels = figure.subplots(1, 2)
        for axes, column, title in zip(panels, (0, 1), ("Mean", "Variance"), strict=True):
            for colour, (name, label) in zip(COLORS, LOSSES.items(), strict=False):
                _draw_curve(axes, np.array([own["times"][name][column] for own in found]), colour)
                axes.plot([], [], color=colour, label=label)
            axes.set_yscale("log")
            axes.set_xlabel("time (1: noise)")
            axes.set_title(f"{title} of the loss over samples")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def _draw_curve(axes: "Axes", curves: Array, colour: str) -> None:
    count = curves.shape[1]
    times = (np.arange(count) + 0.5) / count
    axes.plot(times, curves.mean(0), color=colour, marker="o", markersize=3)
    axes.fill_between(times, curves.min(0), curves.max(0), color=colour, alpha=0.15, linewidth=0)


def draw_gradients(found: Sequence[Any]) -> None:
    """Figure 2: a panel a setting, a point a sample, with the parabola."""
    with saved_figure((8.0, 3.2), GRADIENTS_FIGURE) as figure:
        for axes, name in zip(figure.subplots(1, 2), PUBLISHED_FIT, strict=True):
            x, y = points(found, name)
            coefficients, fit = quadratic_fit(x, y)
            axes.scatter(x, y, s=7, color=COLORS[0], alpha=0.45, linewidths=0)
            line = np.linspace(x.min(), x.max(), 100)
            axes.plot(line, np.polyval(coefficients, line), color=COLORS[1])
            axes.set_xlabel("loss of a sample")
            axes.set_ylabel("norm of its gradient")
            axes.set_ylim(bottom=0)
            axes.set_title(f"{LABELS[name].capitalize()}: R² {fit:.2f}")


if __name__ == "__main__":
    rollouts: Sequence[Mapping[str, Any]] = read()["rollouts"]
    draw_times(rollouts)
    draw_gradients(rollouts)
