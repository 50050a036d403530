"""The runs of the hacking page: gold and proxy scores over training, and what was logged beside."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from detector import Example

from rlfactory.report.read import RunRecord, Series
from rlfactory.report.run_groups import groups_of_table
from rlfactory.report.statistics import MIN_RUNS, mean_interval
from rlfactory.run.atomic_write import write_text
from rlfactory.sweep.table import Table

GOLD = {
    "hacking": "shapes",
    "hacking_digits": "gold",
    "hacking_words": "gold",
    "hacking_text": "sentiment",
}
"""The gold score of each sweep."""
PROXIES = ("shapes_biased", "shapes_noisy", "shapes_learned", "lexicon", "proxy", "ocr")
OTHERS = ("diversity", "text/repetition", "gold_top1/mean", "gold_frechet/mean")
"""Further metrics of evaluations."""
DIVERSITY = ("diversity/pairwise", "diversity/distinct_2")
MARGIN = 0.05
"""A gold score this far below that before training has fallen."""
WINDOW = 3
"""Iterations that a logged metric is averaged over, at the start and at an evaluation."""


@dataclass(frozen=True)
class Point:
    """A run at an evaluation.

    Attributes:
        gold, proxy, distance: the evaluation's scores, and `kl/reference` of its iteration.
        others: further metrics of the evaluation: diversity, repetition.
        features: what the detector sees; empty before training.
    """

    iteration: int
    gold: float
    proxy: float
    distance: float
    others: dict[str, float]
    features: dict[str, float]


@dataclass(frozen=True)
class Run:
    """A finished run; `proxy` is the score that it trains on, or the gold one."""

    sweep: str
    row: str
    proxy: str
    seed: int
    points: list[Point]

    @property
    def first(self) -> Point:
        """Before training."""
        return self.points[0]

    @property
    def last(self) -> Point:
        """After it."""
        return self.points[-1]


def runs_in(folder: Path) -> list[Run]:
    """The finished runs of a sweep's folder."""
    table = Table.load(folder)
    found = []
    for group in groups_of_table(table, folder):
        found += [run_of(record, table.name, group.name) for record in group.runs]
    return found


def run_of(record: RunRecord, sweep: str, row: str) -> Run:
    """What the page needs of a run."""
    series, gold = record.series, GOLD[sweep]
    proxy = next((name for name in PROXIES if f"eval/{name}/mean" in series), gold)
    golds, proxies = (dict_of(series[f"eval/{name}/mean"]) for name in (gold, proxy))
    distances = dict_of(series["kl/reference"])
    points = []
    for at in sorted(golds):
        others = {
            name: value[at]
            for name in OTHERS
            if at in (value := dict_of(series.get(f"eval/{name}", _NOTHING)))
        }
        features = features_at(series, proxy, at) if at else {}
        distance = distances.get(at, 0.0)
        points.append(Point(int(at), golds[at], proxies[at], distance, others, features))
    return Run(sweep, row, proxy, record.seed, points)


_NOTHING: Series = (np.zeros(0), np.zeros(0))


def dict_of(series: Series) -> dict[float, float]:
    """A series by iteration."""
    return dict(zip(*(values.tolist() for values in series), strict=True))


def features_at(series: Mapping[str, Series], proxy: str, at: float) -> dict[str, float]:
    """Changes of logged metrics since the first iterations; none is of the gold score.

    `proxy`: of the mean training reward, in its first standard deviations. `spread`, `distance`,
    `diversity`: logarithms of the ratios of the reward's standard deviation, of `kl/reference` and
    of the samples' diversity.
    """
    mean, spread = (series[f"reward/{proxy}/{of}"] for of in ("mean", "std"))
    diversity = next(series[name] for name in DIVERSITY if name in series)
    (start, now), (first_spread, _) = ends(mean, at), ends(spread, at)
    return {
        "proxy": (now - start) / max(first_spread, 1e-6),
        "spread": log_ratio(spread, at),
        "distance": log_ratio(series["kl/reference"], at),
        "diversity": log_ratio(diversity, at),
    }


def log_ratio(series: Series, at: float) -> float:
    """The logarithm of a metric's mean before iteration `at` over that of the first iterations."""
    start, now = ends(series, at)
    return math.log(max(now, 1e-6) / max(start, 1e-6))


def ends(series: Series, at: float) -> tuple[float, float]:
    """The means of a metric's first `WINDOW` values and of the last ones up to iteration `at`."""
    x, y = series
    return float(y[:WINDOW].mean()), float(y[x <= at][-WINDOW:].mean())


def examples(runs: Sequence[Run]) -> Iterator[Example]:
    """The detector's examples: each run at each evaluation but the first; the proxy is the task.

    Runs that train on the gold score are left out: their training reward is that score.
    """
    for run in runs:
        if run.proxy == GOLD[run.sweep]:
            continue
        for point in run.points[1:]:
            seen = point.features | {"iteration": float(point.iteration)}
            yield Example(run.proxy, seen, point.gold < run.first.gold - MARGIN)


def record_of(run: Run) -> RunRecord:
    """A stored run as reports see one: its evaluations, without the scores of single prompts."""
    at = np.array([float(point.iteration) for point in run.points])
    scores = {
        f"eval/{GOLD[run.sweep]}/mean": [point.gold for point in run.points],
        f"eval/{run.proxy}/mean": [point.proxy for point in run.points],
        **{f"eval/{name}": [p.others[name] for p in run.points] for name in run.first.others},
    }
    series = {name: (at, np.array(values)) for name, values in scores.items()}
    better = {GOLD[run.sweep]: "higher"}
    return RunRecord(Path(run.row), "done", {"seed": run.seed}, series, better=better)


def merged(old: Sequence[Run], new: Sequence[Run]) -> list[Run]:
    """All runs, a new one in place of an old one of the same row and seed; rows in their order."""
    by_key = {(run.sweep, run.row, run.seed): run for run in [*old, *new]}
    return sorted(by_key.values(), key=lambda run: (run.sweep, run.seed))


def write_runs(runs: Sequence[Run], path: Path) -> None:
    """Write runs as JSON, one a line, with six digits."""
    lines = ",\n".join(json.dumps(_rounded(asdict(run)), ensure_ascii=False) for run in runs)
    write_text(path, f"[\n{lines}\n]\n")


def _rounded(node: object) -> object:
    if isinstance(node, float):
        return float(f"{node:.6g}")
    if isinstance(node, dict):
        return {key: _rounded(value) for key, value in node.items()}
    return [_rounded(item) for item in node] if isinstance(node, list) else node


def read_runs(path: Path) -> list[Run]:
    """Read what `write_runs` wrote; none where there is no file."""
    if not path.is_file():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    return [Run(**{**run, "points": [Point(**p) for p in run["points"]]}) for run in content]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """A mean, with the ends of its interval where there are enough runs; a dash for none."""
    if not values:
        return "–"
    ends = mean_interval(values) if len(values) >= MIN_RUNS else None
    low_high = "" if ends is None else f" ({ends[0]:+.{digits}f} … {ends[1]:+.{digits}f})"
    return f"{np.mean(values):+.{digits}f}{low_high}"
