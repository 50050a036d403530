from pathlib import Path

import numpy as np
import pytest

from rlfactory.report.against import draw_against, path_of
from rlfactory.report.group import Group, Member
from rlfactory.report.read import RunRecord


def group(*runs):
    records = [
        RunRecord(Path(str(i)), "done", {}, {k: tuple(map(np.array, v)) for k, v in run.items()})
        for i, run in enumerate(runs)
    ]
    return Group("row", [Member(record.path, record, "done") for record in records])


RUNS = (
    {"kl": ([3, 6, 9], [0.0, 4.0, 16.0]), "eval/a": ([0, 3, 6, 9], [0.0, 1.0, 2.0, 3.0])},
    {"kl": ([3, 6], [0.0, 16.0]), "eval/a": ([0, 3, 6, 9], [0.0, 3.0, 2.0, 3.0])},
)


def test_a_path_has_the_iterations_that_all_runs_measured_both_metrics_at():
    path = path_of(group(*RUNS), "kl", "eval/a")
    assert (path.x, path.mean) == ([0.0, 10.0], [2.0, 2.0])
    assert path.high[0] > 2 == path.high[1]


def test_the_root_is_taken_before_the_mean_over_runs():
    assert path_of(group(*RUNS), "sqrt:kl", "eval/a").x == [0.0, 3.0]


def test_nothing_is_drawn_of_metrics_that_no_run_measured(tmp_path):
    assert not draw_against([group(*RUNS)], "kl", "other", tmp_path / "against.png")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("x", ["kl", "sqrt:kl"])
def test_a_figure_is_drawn(tmp_path, x):
    assert draw_against([group(*RUNS)], x, "eval/a", tmp_path / "against.png")
    assert (tmp_path / "against.png").stat().st_size > 1000
