"""Restoring a run's components for a tool."""

import errno
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlfactory.report.results import Gallery
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.disk_errors import DiskError
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.scores import Scores, read_evaluations
from rlfactory.tools import restore
from rlfactory.tools import restore as module
from rlfactory.train.evaluation.evaluator import Evaluation


def test_no_engine_is_started_for_what_our_own_loop_draws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[Any] = []

    def build(config: Any) -> Any:
        built.append(config["engine"])
        return SimpleNamespace(model=SimpleNamespace(weights=set()))

    monkeypatch.setattr(restore, "single_process_config", lambda config: config)
    monkeypatch.setattr(restore, "build", build)
    monkeypatch.setattr(restore, "load_checkpoint", lambda folder, model: None)
    monkeypatch.setattr(restore, "build_evaluator", lambda *_: None)
    config = {"engine": {"_target_": "rlfactory.engine.vllm_server.VllmServer"}}
    restore.restored_components(tmp_path, config, ["ema"])
    assert built == [{"_target_": "rlfactory.engine.own.Own"}]


def evaluation(score: str, values: list[float], **sets: Evaluation) -> Evaluation:
    prompts = [f"prompt {i}" for i in range(len(values))]
    scores = Scores(prompts, {score: np.array(values)}, categories=["even", "odd"])
    return Evaluation(scores, GeneratedSamples(texts=prompts), sets)


def evaluator(main: str, result: Evaluation | None = None, **sets: Any) -> Any:
    """Knows what the files need of an evaluator, and gives a result."""

    class StandIn(SimpleNamespace):
        def __call__(self, weights: str) -> Evaluation | None:
            assert weights == "ema"
            return result

    model = SimpleNamespace(media="texts")
    return StandIn(
        main=main, draws=True, best_score=1.0, seed=0, prompts=[], model=model, sets=sets
    )


def test_each_prompt_set_is_written_and_printed_with_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    signs = evaluation("ocr", [0.5, 0.5])
    asked = evaluator("shapes", evaluation("shapes", [0.0, 1.0], signs=signs))
    asked.sets["signs"] = evaluator("ocr")

    monkeypatch.setattr(module, "restored_run", lambda *_: nullcontext((None, asked)))
    config = {"evaluation": {"weights": "ema", "grid": 2}}
    module.evaluate(tmp_path, config, best=False)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines]
    assert lines[1] == "Scores on evaluation prompts"
    assert rows[3] == ["shapes", "0.500", "0.000", "…", "1.000", "2"]
    assert [row[:3] for row in rows[7:9]] == [
        ["shapes,", "even", "0.000"],
        ["shapes,", "odd", "1.000"],
    ]
    assert lines[10] == "Scores on signs"
    assert rows[12] == ["ocr", "0.500", "0.500", "…", "0.500", "2"]
    folder = RunFolder(tmp_path)
    for own, score in ((folder, "shapes"), (folder.prompt_set("signs"), "ocr")):
        (written,) = own.evaluations.glob("*.json")
        assert [*Scores.load(written).values] == [score]
        assert (own.samples / f"{written.stem}.md").is_file()
        assert read_evaluations(own) == {}, "no evaluation of the training"
    assert sum(line.startswith("samples: ") for line in lines) == 2


@pytest.mark.parametrize(
    ("owner", "name", "what"),
    [(Scores, "save", r"scores in \S+/evaluations"), (Gallery, "show", r"samples in \S+/run")],
)
def test_a_full_disk_is_told_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, what: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(owner, name, full)
    asked = evaluator("shapes", evaluation("shapes", [0.0, 1.0]))
    monkeypatch.setattr(restore, "restored_run", lambda *_: nullcontext((None, asked)))
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(DiskError, match=rf"{what} could not be written: No space .*; make room$"):
        restore.evaluate(run, {"evaluation": {"weights": "ema", "grid": 2}}, best=False)


def test_where_scores_can_not_be_kept_nothing_is_evaluated(tmp_path: Path) -> None:
    (tmp_path / "evaluations").write_text("no folder")
    message = r"can't be written \(File exists\), .*cp -r \S+ FOLDER && rlfactory evaluate FOLDER"
    with pytest.raises(RunFolderError, match=message):
        restore.evaluate(tmp_path, {}, best=False)
