"""When a checkpoint is due, by stand-ins that note what is saved."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlfactory.hardware.local import Local
from rlfactory.run.scores import Scores
from rlfactory.train.checkpointing import savepoint as module
from rlfactory.train.checkpointing.savepoint import CheckpointSchedule
from rlfactory.train.evaluation.evaluator import Evaluation
from rlfactory.train.listeners import Iteration

OPTIONS = {"every": 0, "minutes": 0, "keep_every": 0, "best": True}


class Noting:
    """Stands in for the savepoint, its manager, the writer and the best score."""

    def __init__(self) -> None:
        self.manager = self.writer = self.best = self
        self.saved_at, self.scheduled = 100.0, set[int]()
        self.calls: list[Any] = []
        self.score = 0.5

    def mark(self) -> None:
        self.calls.append("mark")

    def save(self) -> None:
        self.calls.append("save")

    def check(self) -> None:
        self.calls.append("check")

    def beaten_by(self, scores: Scores) -> bool:
        return scores.means()["main"] > self.score

    def take(self, done: int, scores: Scores) -> None:
        self.calls.append(("best", done))


def schedule(noting: Any, **changes: object) -> CheckpointSchedule:
    return CheckpointSchedule({**OPTIONS, **changes}, noting, Local(device="cpu"))


def iteration(done: int, is_last: bool = False) -> Iteration:
    rollout: Any = None
    return Iteration(done, {}, rollout, is_last)


@pytest.mark.parametrize(
    ("options", "due"),
    [({}, set()), ({"every": 2}, {2, 4}), ({"keep_every": 3}, {3}), ({"minutes": 1}, {3})],
)
def test_it_is_due_by_number_or_by_the_clock(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, float], due: set[int]
) -> None:
    now, noting = [100.0], Noting()
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    made = schedule(noting, **options)
    for done in range(1, 5):
        now[0] += 25
        noting.calls.clear()
        made.after_iteration(iteration(done))
        is_saved = "save" in noting.calls
        assert noting.calls == ["mark", "check", *(["save"] if is_saved else [])]
        if is_saved:
            noting.saved_at = now[0]
    assert noting.scheduled == due


def test_none_is_due_after_the_last_iteration() -> None:
    noting = Noting()
    schedule(noting, every=2).after_iteration(iteration(4, is_last=True))
    assert (noting.calls, noting.scheduled) == (["mark", "check"], set())


@pytest.mark.parametrize(
    ("done", "score", "options", "calls"),
    [
        (2, 0.9, {}, [("best", 2), "mark", "save"]),
        (2, 0.1, {}, []),
        (0, 0.9, {}, []),
        (2, 0.9, {"best": False}, []),
    ],
)
def test_the_best_evaluation_is_saved(
    done: int, score: float, options: dict[str, bool], calls: list[Any]
) -> None:
    noting, samples = Noting(), SimpleNamespace()
    scores = Scores(["a"], {"main": np.array([score])})
    evaluation = Evaluation(scores, samples)  # type: ignore[arg-type]
    schedule(noting, **options).after_evaluation(done, evaluation, {})
    assert noting.calls == calls
