"""What of a run is looked at, by an evaluator and a gallery that note what they are asked."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlfactory import showing as module
from rlfactory.run.disk import Patience
from rlfactory.run.evaluation import Evaluation
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.loggers import NoLogger
from rlfactory.run.scores import Scores
from rlfactory.showing import Showing

SCORES = Scores(["a", "b"], {"length": np.array([1.0, 0.0])})


class Noting:
    """Stands in for the evaluator and for the gallery."""

    def __init__(self, asked: list[Any]) -> None:
        self.asked = asked

    def __call__(self, weights: str) -> Evaluation:
        self.asked.append(("evaluate", weights))
        return Evaluation(SCORES, "samples")  # type: ignore[arg-type]

    def preview(self, weights: str, count: int) -> str:
        self.asked.append(("preview", weights, count))
        return "few samples"

    def keep(self, done: int, drawn: object) -> None:
        self.asked.append(("keep", done, drawn))

    def show(self, name: str, title: str, drawn: object, scores: Scores) -> Path:
        self.asked.append(("show", name, title))
        return Path("shown.md")


@pytest.fixture
def asked() -> list[Any]:
    return []


@pytest.fixture
def showing(tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> Showing:
    monkeypatch.setattr(module, "evaluator", lambda *_: Noting(asked))
    monkeypatch.setattr(module, "gallery", lambda *_: Noting(asked))
    settings = {"weights": "ema", "every": 4, "preview_every": 2, "grid": 2}
    parts: Any = SimpleNamespace(
        reward=SimpleNamespace(main="length", good=None),
        model=SimpleNamespace(media="texts"),
        hardware=SimpleNamespace(rank=0),
    )
    watcher: Any = None
    folder = RunFolder(tmp_path)
    return Showing({"evaluation": settings}, folder, parts, watcher, Patience(tmp_path))


def test_each_has_its_turn(showing: Showing, asked: list[Any]) -> None:
    assert [done for done in range(9) if showing.is_due(done)] == [0, 4, 8]
    for done in (1, 2, 3):
        showing.preview(done)
    assert asked == [("preview", "ema", module.STRIP_PROMPTS), ("keep", 2, "few samples")]


def test_an_evaluation_is_kept_before_it_is_shown(showing: Showing, asked: list[Any]) -> None:
    scores, metrics = showing.evaluate(0, NoLogger())
    assert scores is SCORES
    assert metrics["eval/length/mean"] == 0.5
    title = "length after 0 iterations"
    assert asked == [("evaluate", "ema"), ("keep", 0, "samples"), ("show", "eval_000000", title)]
    assert showing.first().values["length"].tolist() == [1.0, 0.0]


def test_scores_that_have_gone_are_asked_for(showing: Showing) -> None:
    with pytest.raises(RunFolderError, match="000000.json is missing, the scores before training"):
        showing.first()
