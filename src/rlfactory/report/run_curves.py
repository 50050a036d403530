"""The curves of a run: scores, divergence, diversity and time over its iterations.

The loss of a policy is not drawn where samples are its own: it compares the policy with that of the
last iteration, so it neither falls nor says whether a run learns. The loss of data is a score.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rlfactory.report.curves import with_intervals
from rlfactory.report.draw import Plot, panel_svg
from rlfactory.report.labels import evaluation_label, metric_name
from rlfactory.report.plot import COLORS
from rlfactory.report.read import Series
from rlfactory.report.report import Curve
from rlfactory.run.scores import Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND = "80 % of samples"
_BEFORE, _AFTER = COLORS[7], COLORS[1]
_BINS, _FEWEST = 16, 4  # of a histogram: bins, and scores that make one
_SCORES = 3
_PHASES = ("sample", "score", "learn")
LINES = {
    "preference/log_prob_chosen": "",
    "preference/log_prob_rejected": "",
    "kl/reference": "eval/kl",
    "kl/old": "",
    "diversity/pairwise": "eval/diversity",
    "diversity/distinct_2": "eval/diversity",
    "text/length": "",
    "ratio/clip_fraction": "",
    "loss/value": "",
    "grad/norm": "",
}
"""Metrics that get a panel if they were measured and change, and the same in evaluations."""
OF_DATA = {
    "loss": "loss/policy",
    "token_accuracy": "policy/accuracy",
    "preference_accuracy": "preference/accuracy",
    "margin": "preference/margin",
}
"""Scores of held-out rows of the data, and the metrics of the same in training."""

Metrics = Mapping[str, Series]
Evaluations = Mapping[int, Scores]


def run_curves(
    metrics: Metrics, main: str, evaluations: Evaluations, sets: Mapping[str, Evaluations]
) -> list[Curve]:
    """The curves of all panels; none where nothing was measured.

    `main` is the score that trains, empty for the first one logged. Evaluations, and those of
    further prompt sets, give 95 % intervals.
    """
    curves: list[Curve] = []
    for name in _scores(metrics, main, sets):
        given = name in OF_DATA and f"reward/{name}/mean" not in metrics
        title = metric_name(name) if given or curves else f"Reward: {name}"
        panel = (name if given else "score", title)
        curves += _training(metrics, OF_DATA[name] if given else f"reward/{name}/mean", *panel)
        curves += _evaluated(metrics, f"eval/{name}/mean", *panel, evaluations, name)
    for of, own in sets.items():
        names = dict.fromkeys(score for scores in own.values() for score in scores.values)
        for score in [n for n in names if f"eval/{of}/{n}/mean" in metrics][:_SCORES]:
            panel = ("score", f"{score} on {of}")
            curves += _evaluated(metrics, f"eval/{of}/{score}/mean", *panel, own, score)
    for metric, evaluation in LINES.items():
        panel = (metric, metric_name(metric).removesuffix(" in training"))
        drawn = _training(metrics, metric, *panel)
        evaluated = _evaluated(metrics, evaluation, *panel, evaluations)
        values = {round(y, 9) for curve in drawn + evaluated for y in curve.points or curve.mean}
        if drawn and (len(values) > 1 or len(drawn[0].x) == 1):
            curves += drawn + evaluated
    for phase in _PHASES:
        curves += _training(metrics, f"time/{phase}", "time/iteration", "Time per iteration", phase)
    return curves


def _scores(metrics: Metrics, main: str, sets: Mapping[str, Evaluations]) -> list[str]:
    """The score that trains, and two others that were logged on the run's own prompts."""
    logged = [m[1] for key in metrics if (m := re.fullmatch(r"(?:reward|eval)/(.+)/mean", key))]
    own = [name for name in logged if name.partition("/")[0] not in sets]
    return [*dict.fromkeys([main, *own] if main else own)][:_SCORES]


def _training(metrics: Metrics, name: str, metric: str, title: str, phase: str = "") -> list[Curve]:
    """A metric's values as points, and its moving average as a line; of a phase the values alone.

    A score has the band of its 10th to its 90th percentile.
    """
    if name not in metrics:
        return []
    x, y = (axis.tolist() for axis in metrics[name])
    if phase:
        return [Curve(phase, metric, x, y, y, y, title, joined=True)]
    iterations = (x for key, (x, _) in metrics.items() if re.match(r"(?!eval)\w+/", key))
    longest = max(map(len, iterations))
    width = smoothing(longest)  # one of all panels, so that the legend has one line
    mean = low = high = moving_average(y, width)
    stem = name.removesuffix("mean")
    if f"{stem}p10" in metrics and f"{stem}p90" in metrics and len(x) > 1:
        low, high = (np.interp(x, *metrics[stem + end]).tolist() for end in ("p10", "p90"))
    row = f"training, mean of {width}" if width > 1 else "training"
    return [Curve(row, metric, x, mean, low, high, title, points=y, joined=True)]


def _evaluated(
    metrics: Metrics,
    name: str,
    metric: str,
    title: str,
    evaluations: Evaluations,
    score: str = "",
) -> list[Curve]:
    """Dots, with the intervals of a score, and no line, which would suggest a trend between."""
    if name not in metrics:
        return []
    x, y = (axis.tolist() for axis in metrics[name])
    row = evaluation_label(evaluations.values())
    curve = Curve(row, metric, x, y, y, y, title, joined=False)
    known = [evaluations.get(int(at)) for at in x]
    scored = [s.by_prompt(score) if s and score in s.values else None for s in known]
    return [with_intervals(curve, scored)]


def smoothing(count: int) -> int:
    """How many neighbours a moving average takes of `count` values: an odd number."""
    return 1 if count < 10 else 2 * (count // 20) + 3


def moving_average(values: list[float], width: int) -> list[float]:
    """The centred average of `width` values, of fewer and still centred at the ends."""
    reach = [min(width // 2, i, len(values) - 1 - i) for i in range(len(values))]
    return [sum(values[i - r : i + r + 1]) / (2 * r + 1) for i, r in enumerate(reach)]


def histogram(before: Scores, after: Scores, name: str) -> Plot | None:
    """The distribution of a score before and after training; None with too few scores."""
    values = [scores.values.get(name, np.array([])) for scores in (before, after)]
    known = [column[~np.isnan(column)] for column in values]
    together = np.concatenate(known)
    if min(map(len, known)) < _FEWEST or together.min() == together.max():
        return None
    edges = np.linspace(together.min(), together.max(), _BINS + 1)

    def draw(axes: "Axes") -> None:
        for column, color, label in zip(known, (_BEFORE, _AFTER), ("before", "after"), strict=True):
            mean = f"{label}, mean {column.mean():.3g}"
            axes.hist(column, edges.tolist(), color=color, alpha=0.45, label=mean, edgecolor="none")
            axes.axvline(float(column.mean()), color=color, linewidth=1.6)
        axes.legend(labelcolor="#55575e")

    label = f"{name} of each prompt, before and after"
    return Plot(label, "prompts", panel_svg(draw, "h")[0], label)
