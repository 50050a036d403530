from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlfactory.config.overrides import plan_from_words
from rlfactory.report.curves import before, measured
from rlfactory.report.derived import mean_of_scores, planned_passes
from rlfactory.report.read import RunRecord
from rlfactory.sweep.table import Column

AT = np.array([0.0, 8.0])
SERIES = {
    "eval/a/mean": (AT, np.array([1.0, 2.0])),
    "eval/b/mean": (AT, np.array([10.0, 30.0])),
}
RUN = RunRecord(Path("r"), "done", {}, SERIES)


def test_a_column_is_the_plain_mean_of_scores() -> None:
    assert mean_of_scores(RUN, "a+0.1*b") == pytest.approx((2 + 3) / 2)
    assert mean_of_scores(RUN, "a+0.1*b", at=0) == pytest.approx((1 + 1) / 2)
    assert mean_of_scores(RUN, "a+c") is None
    assert mean_of_scores(RUN, "a+b", at=4) is None


def test_a_model_before_training_has_the_mean_of_its_first_scores() -> None:
    column = Column("m", "M", "mean/a+0.1*b")
    assert measured(RUN, column) == pytest.approx(2.5)
    assert measured(RUN, before(column)) == pytest.approx(1.0)


def planned(*words: str) -> RunRecord:
    return replace(RUN, config=plan_from_words(*words).config)


def test_passes_are_the_plans_own() -> None:
    run = planned("algo=vgrpo", "model=tiny_sd3")  # 10 to sample, 2 to compare, 4 to learn
    found = [planned_passes([run], name) for name in ("rollout", "train", "all")]
    assert found == [12, 4, 16]
    assert planned_passes([RUN], "all") is None


def test_passes_of_stages_are_a_mean_over_optimizer_steps() -> None:
    short = planned("algo=vgrpo", "iterations=10", "updates_per_iteration=2")  # 16
    long = planned("algo=nft", "iterations=60", "updates_per_iteration=1")  # 18
    assert planned_passes([short, long], "all") == pytest.approx((20 * 16 + 60 * 18) / 80)
