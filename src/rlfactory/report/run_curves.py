"""The curves of a run: scores, divergence, diversity and time over its iterations.

The loss of a policy is not drawn where samples are its own: it compares the policy with that of the
last iteration, so it neither falls nor says whether a run learns. The loss of data is a score.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlfactory.report.labels import evaluation_label, metric_name, metric_unit
from rlfactory.report.plot import (
    COLORS,
    Panel,
    Plot,
    add_panels,
    draw_dots,
    panel_grid,
    placed_panel,
    saved_figure,
    svg_for_html,
)
from rlfactory.report.statistics import drawn_interval
from rlfactory.run.metrics import Record
from rlfactory.run.scores import Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (4.4, 2.7)  # inches of a plot on the page
BOX = (0.12, 0.165, 0.86, 0.68)  # left, bottom, width and height of its axes, as shares
_BLUE, _ORANGE, _GREEN = COLORS[:3]
_BEFORE, _AFTER = COLORS[7], COLORS[1]
_BINS, _FEWEST = 16, 4  # of a histogram: bins, and scores that make one
_SCORES = 3
_PHASES = {"sample": _BLUE, "score": _GREEN, "learn": _ORANGE}
_LEGEND_LETTERS, _LEGEND_ROW = 44, 13  # letters beside each other, and points of a row
LINES = (
    ("preference/log_prob_chosen", ""),
    ("preference/log_prob_rejected", ""),
    ("kl/reference", "eval/kl"),
    ("kl/old", ""),
    ("diversity/pairwise", "eval/diversity"),
    ("diversity/distinct_2", "eval/diversity"),
    ("text/length", ""),
    ("ratio/clip_fraction", ""),
    ("loss/value", ""),
    ("grad/norm", ""),
)
"""Metrics that get a panel if they were measured and change: in training, and in evaluations."""

OF_DATA = {
    "loss": "loss/policy",
    "token_accuracy": "policy/accuracy",
    "preference_accuracy": "preference/accuracy",
    "margin": "preference/margin",
}
"""Scores of held-out rows of the data, and the metrics of the same in training."""

Series = tuple[list[float], list[float]]
"""Iterations, and a metric's value at each."""


@dataclass(frozen=True)
class RunCurves:
    """What the curves of a run are drawn from.

    Attributes:
        metrics: the lines of metrics.jsonl.
        reward: the score that trains; None: the first one logged.
        evaluations: the scores of evaluations by iteration, for their 95 % intervals.
        ticks: the iterations to mark, those of the strip.
        label: what the prompts of the evaluations are called.
        sets: the evaluations on further prompt sets, by name.
    """

    metrics: Sequence[Record]
    reward: str | None = None
    evaluations: Mapping[int, Scores] = field(default_factory=dict)
    ticks: Sequence[int] = ()
    label: str = evaluation_label()
    sets: Mapping[str, Mapping[int, Scores]] = field(default_factory=dict)

    def panels(self) -> dict[str, Panel]:
        """The panels by title; none where nothing was measured."""
        panels: dict[str, Panel] = {}
        for name in self._scores():
            is_given = self._is_given(name)
            title = metric_name(name) if is_given or panels else f"Reward: {name}"
            panels[title] = self._score_panel(name, name, self.evaluations, self.label)
        for prompt_set, evaluations in self.sets.items():
            panels |= self._set_panels(prompt_set, evaluations)
        for training, evaluation in LINES:
            first, second = self.series(training), self.series(evaluation)
            values = {round(y, 9) for y in first[1] + second[1]}
            if first[0] and (len(values) > 1 or len(first[0]) == 1):
                title = metric_name(training).removesuffix(" in training")
                panels[title] = self._line_panel(training, first, second)
        if any(self.series(f"time/{phase}")[0] for phase in _PHASES):
            panels["Time per iteration"] = self._draw_times
        return panels

    def series(self, name: str) -> Series:
        """A metric's finite values."""
        rows = aligned(self.metrics, [name])
        return [row[0] for row in rows], [row[1] for row in rows]

    def _is_given(self, name: str) -> bool:
        """Whether a score is of rows of the data, not a reward's of that name."""
        return name in OF_DATA and not self.series(f"reward/{name}/mean")[0]

    def _scores(self) -> list[str]:
        """The score that trains, and two others that were logged on the run's own prompts."""
        pattern = re.compile(r"(?:reward|eval)/(.+)/mean")
        logged = [
            m[1] for record in self.metrics for key in record if (m := pattern.fullmatch(key))
        ]
        logged = [name for name in logged if name.partition("/")[0] not in self.sets]
        first = [] if self.reward is None else [self.reward]
        return [*dict.fromkeys(first + logged)][:_SCORES]

    def _set_panels(self, name: str, evaluations: Mapping[int, Scores]) -> dict[str, Panel]:
        """The panels of a prompt set's first scores, before and after training."""
        names = dict.fromkeys(score for own in evaluations.values() for score in own.values)
        scores = [score for score in names if self.series(f"eval/{name}/{score}/mean")[0]]
        label = evaluation_label(evaluations.values())
        return {
            f"{score} on {name}": self._score_panel(score, f"{name}/{score}", evaluations, label)
            for score in scores[:_SCORES]
        }

    def _score_panel(
        self, score: str, logged: str, evaluations: Mapping[int, Scores], label: str
    ) -> Panel:
        """The panel of a score of `evaluations`, which is `logged` by this name."""

        def draw(axes: "Axes") -> None:
            band = aligned(self.metrics, [f"reward/{logged}/{end}" for end in ("p10", "p90")])
            if len(band) > 1:
                at, low, high = ([row[i] for row in band] for i in range(3))
                share = "80 % of samples"
                axes.fill_between(at, low, high, color=_BLUE, alpha=0.12, linewidth=0, label=share)
            is_given = self._is_given(logged)
            metric = OF_DATA[logged] if is_given else f"reward/{logged}/mean"
            _draw_training(axes, self.series(metric))
            at, mean = self.series(f"eval/{logged}/mean")
            ends = [
                _interval(evaluations.get(int(i)), score, y) for i, y in zip(at, mean, strict=True)
            ]
            _draw_evaluations(axes, (at, mean), ends, label)
            axes.set_ylabel(metric_unit(score) if is_given else "score")
            _legend(axes)

        return draw

    def _line_panel(self, metric: str, training: Series, evaluation: Series) -> Panel:
        def draw(axes: "Axes") -> None:
            _draw_training(axes, training)
            _draw_evaluations(axes, evaluation, [], self.label)
            axes.set_ylabel(metric_unit(metric))
            if evaluation[0]:
                _legend(axes)

        return draw

    def _draw_times(self, axes: "Axes") -> None:
        rows = aligned(self.metrics, [f"time/{phase}" for phase in _PHASES], missing=0.0)
        at, *parts = zip(*rows, strict=True)
        below = [0.0] * len(at)
        for (phase, color), seconds in zip(_PHASES.items(), parts, strict=True):
            axes.bar(at, seconds, bottom=below, width=1.0, color=color, linewidth=0, label=phase)
            below = [b + s for b, s in zip(below, seconds, strict=True)]
        axes.set_ylabel("seconds")
        _legend(axes)


def draw_curves(curves: RunCurves, path: Path, title: str = "") -> bool:
    """Write a PNG with a panel for every metric measured; False if there was nothing to draw."""
    panels = curves.panels()
    if not panels:
        return False
    columns, rows = panel_grid(len(panels))
    with saved_figure((4.1 * columns, 3.0 * rows + 0.3 * bool(title)), path) as figure:
        if title:
            figure.suptitle(title.replace("$", r"\$"), x=0.01, ha="left", fontweight="bold")
        add_panels(figure, [_titled(*panel) for panel in panels.items()], ticks=curves.ticks)
    return True


def _titled(title: str, draw: Panel) -> Panel:
    def draw_all(axes: "Axes") -> None:
        draw(axes)
        axes.set_title(title.replace("$", r"\$"), pad=9 + _LEGEND_ROW * _legend_rows(axes))

    return draw_all


def _draw_training(axes: "Axes", series: Series) -> None:
    """The values as faint points, and a line through their moving average."""
    x, y = series
    if not x:
        return
    width = smoothing(len(x))
    is_smoothed = width > 1
    alpha = 0.45 if is_smoothed else 0.9
    axes.plot(x, y, "o", color=_BLUE, markersize=3, alpha=alpha, markeredgewidth=0)
    label = f"training, mean of {width}" if is_smoothed else "training"
    axes.plot(x, moving_average(y, width), "-", color=_BLUE, linewidth=1.4, label=label)


def _interval(scores: Scores | None, name: str, mean: float) -> tuple[float, float]:
    """The 95 % interval of an evaluation's mean; the mean itself where it is unknown."""
    if scores is None or name not in scores.values:
        return mean, mean
    return drawn_interval(scores.by_prompt(name), mean)


def _draw_evaluations(
    axes: "Axes", series: Series, ends: Sequence[tuple[float, float]], label: str
) -> None:
    """Markers with their intervals, and no line, which would suggest a trend between them."""
    x, y = series
    if not x:
        return
    low, high = zip(*ends, strict=True) if ends else (y, y)
    has_interval = [*low] != y or [*high] != y
    label = f"{label}, 95 % interval" if has_interval else label
    style = {"fmt": "o", "color": _ORANGE, "markersize": 5, "capsize": 2.5, "elinewidth": 1.3}
    draw_dots(axes, x, y, (low, high) if has_interval else None, label=label, **style)


def _legend(axes: "Axes") -> None:
    """A legend between title and data."""
    columns = _legend_columns(axes)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.985),
        ncols=columns,
        columnspacing=1.2,
        handlelength=1.5,
        labelspacing=0.2,
    ).set_in_layout(False)  # a long legend may reach beyond its axes instead of shrinking all


def _legend_rows(axes: "Axes") -> int:
    legend = axes.get_legend()
    return 0 if legend is None else -(-len(legend.get_texts()) // _legend_columns(axes))


def _legend_columns(axes: "Axes") -> int:
    _, labels = axes.get_legend_handles_labels()
    for columns in (3, 2):
        rows = -(-len(labels) // columns)
        wide = [max(map(len, labels[i : i + rows])) for i in range(0, len(labels), rows)]
        if sum(wide) < _LEGEND_LETTERS:
            return columns
    return 1


def smoothing(count: int) -> int:
    """How many neighbours a moving average takes of `count` values: an odd number."""
    return 1 if count < 10 else 2 * (count // 20) + 3


def moving_average(values: Sequence[float], width: int) -> list[float]:
    """The centred average of `width` values, of fewer and still centred at the ends."""
    averages = []
    for i in range(len(values)):
        reach = min(width // 2, i, len(values) - 1 - i)
        near = values[i - reach : i + reach + 1]
        averages.append(sum(near) / len(near))
    return averages


def aligned(
    metrics: Sequence[Record], names: Sequence[str], missing: float | None = None
) -> list[tuple[float, ...]]:
    """`(iteration, value, ...)` of the records that have a finite value of every name.

    With `missing`, one of them is enough, and `missing` fills in for the others.
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


def run_plots(
    curves: RunCurves, before: Scores | None, after: Scores | None, main: str
) -> list[Plot]:
    """The plots of a run's page: each panel, and after the first one the scores' distribution."""
    plots = [
        _plot(draw, title, f"c{number}", curves.ticks)
        for number, (title, draw) in enumerate(curves.panels().items())
    ]
    if before and after and main and (drawn := histogram(before, after, main)):
        plots.insert(1, drawn)
    return plots


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

    return _plot(draw, f"{name} of each prompt, before and after", "h", (), name)


def _plot(draw: Panel, title: str, name: str, ticks: Sequence[float], label: str = "") -> Plot:
    from matplotlib.ticker import MaxNLocator

    with placed_panel(draw, SIZE, BOX, ticks) as (figure, axes):
        above = _LEGEND_ROW * (_legend_rows(axes) + 0.3) / (72 * SIZE[1])
        axes.set_position((*BOX[:3], min(BOX[3], 1 - BOX[1] - above)))  # a high legend has room
        if label:
            axes.set_xlabel(label.replace("$", r"\$"))
            axes.xaxis.set_major_locator(MaxNLocator(6))  # in place of one of whole numbers
        axes.locator_params(axis="y", nbins=5)
        if legend := axes.get_legend():
            for text in legend.get_texts():
                text.set_color("#55575e")
        unit = axes.get_ylabel()
        axes.set_ylabel("")  # stands beside the title
        svg = svg_for_html(figure, name)
    return Plot(title, unit, svg, title if label else f"{title} over iterations")
