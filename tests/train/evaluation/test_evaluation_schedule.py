"""When an evaluation or a preview is due, by stand-ins that note what they are asked."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.loggers import NoLogger
from rlfactory.run.scores import Scores
from rlfactory.train.evaluation import evaluation_schedule as module
from rlfactory.train.evaluation.evaluation_schedule import EvaluationReporter, EvaluationSchedule
from rlfactory.train.evaluation.evaluator import Evaluation
from rlfactory.train.listeners import Iteration, Listener

ALL_SCORES = Scores(["a", "b"], {"length": np.array([1.0, 0.0])})


class NotingGallery:
    """Stands in for the gallery."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def record_evaluation(self, done: int, samples: object) -> None:
        self.calls.append(("keep all", done, samples))

    def record_preview(self, done: int, samples: object) -> None:
        self.calls.append(("keep", done, samples))

    def show(self, name: str, title: str, samples: object, scores: Scores) -> Path:
        self.calls.append(("show", name, title))
        return Path("shown.md")


def test_an_evaluation_is_kept_before_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery, folder = NotingGallery(), RunFolder(tmp_path)
    monkeypatch.setattr(module, "Gallery", lambda *_: gallery)
    evaluator: Any = SimpleNamespace(
        prompts=[],
        seed=0,
        separate=True,
        main="length",
        best_score=None,
        draws=True,
        sets={},
        model=SimpleNamespace(media="texts"),
    )
    reporter = EvaluationReporter(folder, evaluator, NoLogger(), count=2)
    reporter.after_evaluation(0, Evaluation(ALL_SCORES, "samples"), {})  # type: ignore[arg-type]
    reporter.after_preview(2, "few samples")  # type: ignore[arg-type]
    title = "length after 0 iterations"
    shown = ("show", "eval_000000", title)
    assert gallery.calls == [("keep all", 0, "samples"), shown, ("keep", 2, "few samples")]
    assert Scores.load(folder.evaluation(0)).values["length"].tolist() == [1.0, 0.0]


SCORES = Scores(["a", "b"], {"length": np.array([1.0, 0.0])})
OPTIONS = {"weights": "ema", "every": 4, "preview_every": 2}


class Noting(Listener):
    """Stands in for the evaluator, the savepoint and the listeners."""

    draws = True
    prompts = (SimpleNamespace(text="a"), SimpleNamespace(text="b"))

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, weights: str) -> Evaluation:
        self.calls.append(("evaluate", weights))
        return Evaluation(SCORES, "samples")  # type: ignore[arg-type]

    def preview(self, weights: str, count: int) -> str:
        self.calls.append(("preview", weights, count))
        return "few samples"

    def mark(self) -> None:
        self.calls.append("mark")

    def after_evaluation(self, done: int, evaluation: object, metrics: Any) -> None:
        self.calls.append(("evaluated", done, metrics["eval/length/mean"]))

    def after_preview(self, done: int, samples: object) -> None:
        self.calls.append(("previewed", done, samples))


@pytest.fixture
def noting() -> Noting:
    return Noting()


@pytest.fixture
def schedule(tmp_path: Path, noting: Any) -> EvaluationSchedule:
    return EvaluationSchedule(OPTIONS, noting, noting, RunFolder(tmp_path), [noting])


def test_each_is_due_every_so_many_iterations_and_made_once(
    schedule: EvaluationSchedule, noting: Noting
) -> None:
    for done in (1, 2, 2, 3, 4, 4):
        schedule.evaluate_if_due(done)
    assert [call for call in noting.calls if call != "mark"] == [
        ("preview", "ema", module.STRIP_PROMPTS),
        ("previewed", 2, "few samples"),
        ("evaluate", "ema"),
        ("evaluated", 4, 0.5),
    ]
    assert noting.calls[-1] == "mark"
    assert schedule.last_evaluated == 4


def test_none_is_due_after_the_last_iteration(schedule: EvaluationSchedule, noting: Noting) -> None:
    rollout: Any = None
    schedule.after_iteration(Iteration(4, {}, rollout, is_last=True))
    assert noting.calls == []


def test_initial_scores_are_evaluated_once_and_then_read(
    schedule: EvaluationSchedule, noting: Noting
) -> None:
    assert schedule.initial_scores() is SCORES
    with pytest.raises(RunFolderError, match="000000.json is missing, the scores before training"):
        schedule.initial_scores()
    SCORES.save(schedule.folder.evaluation(0))
    assert schedule.initial_scores().values["length"].tolist() == [1.0, 0.0]
    noting.prompts = noting.prompts[:1]
    with pytest.raises(RunFolderError, match="began with other prompts to evaluate on"):
        schedule.initial_scores()
    assert noting.calls.count(("evaluate", "ema")) == 1
