"""Numbers of a run that are none of its metrics: means of scores, and what its plan counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory.config.nfe import passes_per_sample
from rlfactory.config.schema.root import COMPONENTS
from rlfactory.config.schema.signature import read_signature
from rlfactory.report.read import RunRecord


def mean_of_scores(run: RunRecord, terms: str, at: int | None = None) -> float | None:
    """The plain mean of evaluation scores, as `hps+0.26*pickscore`; None where a score is missing.

    `at` is the iteration of the evaluation to read, instead of the last one.
    """
    values = []
    for term in terms.split("+"):
        factor, _, score = term.rpartition("*")
        if (series := run.series.get(f"eval/{score}/mean")) is None:
            return None
        x, y = series
        chosen = y if at is None else y[x == at]
        if not len(chosen):
            return None
        values.append(float(factor or 1) * float(chosen[-1]))
    return sum(values) / len(values)


def planned_passes(runs: Sequence[RunRecord], name: str) -> float | None:
    """Forward passes a sample by the runs' plans: `rollout`, `train`, or `all` of both.

    Of the stages of a row it is the mean over optimizer steps. As published, `rollout` includes
    the passes that only compare policies. None where a configuration doesn't say it.
    """
    try:
        counts = [(_updates(run.config), _passes(run.config)[name]) for run in runs]
    except (LookupError, TypeError, ValueError):  # of an earlier version
        return None
    return sum(n * passes for n, passes in counts) / sum(n for n, _ in counts)


def _updates(config: Mapping[str, Any]) -> int:
    return int(config["iterations"] * config["updates_per_iteration"])


def _passes(config: Mapping[str, Any]) -> dict[str, float]:
    traits = {
        group: read_signature(config[group]["_target_"]).class_constants
        for group in COMPONENTS
        if "_target_" in (config.get(group) or {})
    }
    sample, compare, train = passes_per_sample(config, traits)
    rollout = sample + compare
    return {"rollout": rollout, "train": train, "all": rollout + train}
