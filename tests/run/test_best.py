"""The best checkpoint by the held-out score."""

import json
from pathlib import Path

import numpy as np
import pytest

from rlfactory.run.best import Best, best_step
from rlfactory.run.scores import Scores


def scores(value: float, kl: float = float("nan")) -> Scores:
    return Scores(["a", "b"], {"main": np.array([value, value])}, kl=kl)


def test_a_higher_score_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    best = Best(tmp_path, "main")
    assert best_step(tmp_path) is None
    assert best.beaten_by(scores(-3.0))
    best.take(10, scores(-3.0))
    assert not best.beaten_by(scores(-3.0))
    assert best.beaten_by(scores(0.5))
    best.take(20, scores(0.5))
    best.write()
    assert best_step(tmp_path) is None, "its checkpoint is not there yet"
    (tmp_path / "step_000020").mkdir()
    best.write()
    assert best_step(tmp_path) == 20
    assert json.loads((tmp_path / "best.json").read_text()) == {"step": 20, "main": 0.5}


def test_what_could_not_be_scored_is_never_the_best(tmp_path: Path) -> None:
    assert not Best(tmp_path, "main").beaten_by(scores(float("nan")))


@pytest.mark.parametrize(("kl", "takes_part"), [(0.05, True), (0.2, False), (float("nan"), True)])
def test_a_step_that_went_too_far_takes_no_part(
    tmp_path: Path, kl: float, takes_part: bool
) -> None:
    assert Best(tmp_path, "main", kl=0.1).beaten_by(scores(1.0, kl)) is takes_part


def test_a_later_sitting_knows_what_was_the_best(tmp_path: Path) -> None:
    first, second = Best(tmp_path, "main"), Best(tmp_path, "main")
    second.load_state_dict(first.state_dict())
    assert second.beaten_by(scores(-3.0))
    first.take(10, scores(0.5))
    second.load_state_dict(first.state_dict())
    assert second.step == 10
    assert not second.beaten_by(scores(0.5))
