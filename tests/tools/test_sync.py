"""`rlfactory sync`: a run's record told to a logger afterwards."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.cli import app
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers import TensorBoard, Wandb

FROZEN: dict[str, str] = {}


def made(path: Path, *words: str) -> Path:
    """A run folder that has no more than is needed."""
    typed = " ".join(words)
    if typed not in FROZEN:
        FROZEN[typed] = plan_from_words(*words).frozen()
    folder = RunFolder.create(path)
    folder.config.write_text(FROZEN[typed])
    lines = [{"iteration": i, "time": 1.0, "loss/policy": float(i)} for i in range(3)]
    folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder.set_status("done")
    return path


def points(run: Path) -> list[float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return [event.value for event in events.Scalars("loss/policy")]


def test_a_run_that_had_none_gets_one_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(made(tmp_path / name)) for name in ("a", "b")]
    for _ in range(2):
        assert app.dispatch(["sync", *runs, "logger=tensorboard"]) == 0
        assert points(tmp_path / "a") == points(tmp_path / "b") == [0.0, 1.0, 2.0]
    assert (
        capsys.readouterr().out.splitlines()[0]
        == f"{runs[0]}: TensorBoard has 3 lines of metrics and the samples"
    )
    assert (
        yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())["choices"]["logger"] == "jsonl"
    )


def test_its_own_logger_needs_no_naming(tmp_path: Path) -> None:
    run = made(tmp_path / "run", "logger=several", "logger.of=[tensorboard]")
    assert app.dispatch(["sync", str(run)]) == 0
    assert points(run) == [0.0, 1.0, 2.0]


def test_a_service_that_fails_is_named_and_the_next_run_has_its_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [str(made(tmp_path / name)) for name in ("a", "b")]
    real = TensorBoard.start

    def start(self: TensorBoard, run_dir: Path, config: Any) -> None:
        if run_dir.name == "a":
            raise ConnectionError("no network")
        real(self, run_dir, config)

    monkeypatch.setattr(TensorBoard, "start", start)
    assert app.dispatch(["sync", *runs, "logger=tensorboard"]) == 1
    assert capsys.readouterr().err == f"error: {runs[0]}: TensorBoard: no network\n"
    assert points(tmp_path / "b") == [0.0, 1.0, 2.0]


def test_of_several_each_has_its_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: Wandb, run_dir: Path, config: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(Wandb, "start", start)
    run = str(made(tmp_path / "run"))
    assert app.dispatch(["sync", run, "logger=several", "logger.of=[wandb,tensorboard]"]) == 1
    assert capsys.readouterr().err == f"error: {run}: wandb: no network\n"
    assert points(tmp_path / "run") == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no run folder named"),
        (["nowhere", "logger=wandb"], "is no run folder"),
        (["run"], "the run has no logger, only metrics.jsonl"),
        (["run", "logger=wandbb"], "Did you mean wandb"),
        (["run", "logger=wandb", "logger.mode=of"], "allowed is online | offline"),
        (["run", "logger=several"], "is empty; name the loggers"),
        (["run", "logger=several", "logger.of=[tensorbord]"], "Did you mean tensorboard"),
        (["run", "logger=wandb", "seed=1"], "can't be changed any more; allowed is logger"),
        (["bare", "logger=wandb"], "has no metrics.jsonl yet"),
    ],
    ids=str,
)
def test_what_can_not_be_told_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "run")
    (made(tmp_path / "bare") / "metrics.jsonl").unlink()
    with pytest.raises(PlanError) as refused:
        app.dispatch(["sync", *words])
    assert said in str(refused.value)
    assert not (tmp_path / "run" / "wandb_id").exists()


def test_a_run_that_goes_on_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlfactory.cli import resume

    def busy(path: Path, take_over: bool) -> None:
        raise PlanError([])

    monkeypatch.setattr(resume, "require_unlocked", busy)
    with pytest.raises(PlanError):
        app.dispatch(["sync", str(made(tmp_path / "run")), "logger=tensorboard"])
    assert not (tmp_path / "run" / "tensorboard").exists()
