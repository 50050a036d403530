"""`rlfactory sync`: a run's record told to a logger afterwards."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from rlfactory.cli import app
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.report.results import Gallery
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers import NoLogger, TensorBoard, Wandb
from rlfactory.run.loggers.base import log_samples
from rlfactory.run.metrics import MetricsLog
from rlfactory.run.samples import SampleTable
from rlfactory.run.scores import Scores
from rlfactory.tools.sync import replay_run

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
        (["run", "logger=several"], "logger.of: is empty; name the parts"),
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


SCORES = Scores(["a", "b"], {"main": np.array([0.25, np.nan]), "other": np.array([1.0, 2.0])})


class Noting(NoLogger):
    """Notes by name what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def restart(self, run_dir: Path) -> None:
        self.told.append(("restart", run_dir))

    def start(self, run_dir: Path, config: Any) -> None:
        self.told.append(("start", run_dir, config))

    def log(self, iteration: int, values: Any) -> None:
        self.told.append(("log", iteration, {k: v for k, v in values.items() if v == v}))

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        self.told.append(("images", iteration, name, path.name, caption))

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        self.told.append(("table", iteration, name, table))

    def finish(self) -> None:
        self.told.append(("finish",))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def shown(run: RunFolder, iteration: int, media: Any = "images") -> Path:
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    texts = ["one", "two"]
    drawn = GeneratedSamples(images=images) if media == "images" else GeneratedSamples(texts=texts)
    rooms = Gallery(run.samples, "main", None, 2)
    rooms.record_preview(iteration, drawn)
    return rooms.show(f"eval_{iteration:06d}", f"after {iteration}", drawn, SCORES)


def test_pictures_have_captions_and_a_table_with_every_score(run: RunFolder) -> None:
    logger = Noting()
    log_samples(logger, 3, shown(run, 3))
    picture, (*named, table) = logger.told
    assert picture == ("images", 3, "eval/samples", "eval_000003.png", "after 3")
    assert named == ["table", 3, "eval/table"]
    assert table.columns == ["prompt", "main", "other"]
    assert table.rows == [["a", 0.25, 1.0], ["b", None, 2.0]]
    assert [path.name for path in table.pictures] == ["000003_0.png", "000003_1.png"]
    assert all(path.is_file() for path in table.pictures)


def test_texts_have_a_table_alone(run: RunFolder) -> None:
    logger = Noting()
    log_samples(logger, 3, shown(run, 3, "texts"))
    ((*_, table),) = logger.told
    assert table.columns == ["prompt", "response", "main", "other"]
    assert table.rows[1] == ["b", "two", None, 2.0]
    assert table.pictures == []


def test_an_older_run_has_no_table(run: RunFolder) -> None:
    logger = Noting()
    shown(run, 3).with_suffix(".json").unlink()
    log_samples(logger, 3, run.grid(3))
    assert logger.told == [("images", 3, "eval/samples", "eval_000003.png", "")]


@pytest.mark.parametrize("media", ["images", "texts"])
def test_afterwards_it_is_told_what_it_was_told_before(run: RunFolder, media: str) -> None:
    live, later = Noting(), Noting()
    metrics = MetricsLog(run.metrics, [live])
    for i in range(4):
        if i:
            metrics.log(i, {"loss/policy": i / 2, "loss/value": float("nan")})
        if i % 2 == 0:
            log_samples(live, i, shown(run, i, media))
            metrics.log(i, {"eval/main/mean": 0.5})
        if i == 2:
            log_samples(live, i, shown(run.prompt_set("hard"), i, media), "hard")
    shown(run, 0, media).with_name("eval_2026-01-01.png").write_bytes(b"of rlfactory evaluate")
    assert replay_run(later, run, {"seed": 1}) == 5
    begin, end = later.told[:2], later.told[-1]
    assert begin == [("restart", run.path), ("start", run.path, {"seed": 1})]
    assert end == ("finish",)
    by_iteration = [sorted(map(str, told)) for told in (live.told, later.told[2:-1])]
    assert by_iteration[0] == by_iteration[1]
    assert [t[1] for t in later.told[2:-1]] == sorted(t[1] for t in live.told)


def test_a_damaged_record_is_named_before_anything_is_told(run: RunFolder) -> None:
    run.metrics.write_text(json.dumps({"iteration": 0, "time": 0.0}) + "\n{\n")
    logger = Noting()
    with pytest.raises(ValueError, match=r"metrics.jsonl: line 2"):
        replay_run(logger, run, {})
    assert logger.told == []


def test_a_pipe_in_the_place_of_an_image_is_not_waited_for(run: RunFolder) -> None:
    run.metrics.write_text('{"iteration": 20}\n')
    os.mkfifo(run.samples / "eval_000009.png")
    logger = Noting()
    replay_run(logger, run, {})
    assert "eval_000009" not in repr(logger.told)
