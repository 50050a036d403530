"""The real thing, offline: what it wrote is in one file."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import wandb

from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers.base import SWEEP, logger_links
from rlfactory.run.loggers.wandb import Wandb
from rlfactory.run.samples import SampleTable


def offline(**options: Any) -> Wandb:
    return Wandb(**{"project": "p", "mode": "offline", "entity": None, "tags": ["t"], **options})


def record(run_dir: Path) -> bytes:
    return b"".join(path.read_bytes() for path in run_dir.glob("wandb/offline-run-*/*.wandb"))


def is_recorded(run_dir: Path, said: str) -> bool:
    """W&B's own process writes; where the machine is busy it ends a moment after the run."""
    end = time.monotonic() + 30
    while said.encode() not in record(run_dir):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_offline_it_keeps_everything_under_one_id_over_two_starts(
    tmp_path: Path,
    picture: Path,
    table: SampleTable,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(SWEEP, "awm-tiny")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run_dir = tmp_path / "the-run"
    RunFolder.create(run_dir)
    for iteration in range(2):
        logger = offline(mode="offline" if iteration else None)
        logger.start(run_dir, {"algo": {"clip": 0.125}})
        logger.log(iteration, {"loss/policy": 0.5, "loss/value": float("nan")})
        if iteration:
            logger.images(iteration, "eval/samples", picture, "the caption")
            logger.table(iteration, "eval/table", table)
        logger.finish()
        logger.finish()
    assert "wandb:" not in "".join(capfd.readouterr())
    assert logger_links(run_dir) == {}, "offline there is no page"
    stored = (run_dir / "wandb_id").read_text().strip()
    folders = list((run_dir / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    # the second has a number where both start within a second
    named = re.compile(rf"offline-run-\d+_\d+-{stored}(-\d+)?")
    assert all(named.fullmatch(folder.name) for folder in folders)
    for said in ("awm-tiny", "the-run", "loss/policy", "the caption", "0.125", "eval/samples"):
        assert is_recorded(run_dir, said), said
    (kept,) = run_dir.glob("wandb/offline-run-*/files/media/table/eval/*.json")
    content = json.loads(kept.read_text())
    assert content["columns"] == ["image", "prompt", "score"]
    assert [row[1:] for row in content["data"]] == [["a | cat", 1.0], ["a dog", None]]
    assert content["data"][1][0] is None


@pytest.mark.slow
def test_a_run_that_is_open_stays_its_users(tmp_path: Path) -> None:
    mine = wandb.init(mode="offline", dir=tmp_path)
    folder = RunFolder.create(tmp_path / "run")
    logger = offline()
    logger.start(folder.path, {})
    folder.set_status("failed")
    logger.finish()
    mine.log({"my own": 1.0})
    mine.finish()
    assert len([*folder.path.glob("wandb/offline-run-*/*.wandb")]) == 1
    assert is_recorded(tmp_path, "my own")


@pytest.mark.slow
def test_it_goes_on_by_the_id_that_was_saved_and_begins_anew_by_another(tmp_path: Path) -> None:
    RunFolder.create(tmp_path)
    first, second = offline(mode="disabled"), offline(mode="disabled")
    first.start(tmp_path, {})
    first.finish()
    saved = first.state_dict()
    (tmp_path / "wandb_id").unlink()
    second.resume(saved, 3)
    second.start(tmp_path, {})
    assert second.state_dict() == saved
    assert (tmp_path / "wandb_id").read_text().strip() == saved["wandb"]
    second.finish()
    second.restart(tmp_path)
    second.start(tmp_path, {})
    second.finish()
    assert second.state_dict() != saved
    assert (tmp_path / "wandb_id").read_text().strip() == second.state_dict()["wandb"]


def test_the_id_stays_where_a_run_can_not_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr("wandb.init", init)
    (tmp_path / "wandb_id").write_text("abc\n")
    logger = offline(mode="online")
    logger.restart(tmp_path)
    with pytest.raises(ConnectionError):
        logger.start(tmp_path, {})
    assert (tmp_path / "wandb_id").read_text() == "abc\n"


def test_online_a_run_is_resumed_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Run:
        offline, url = False, "https://metrics.example/abc"

        def define_metric(self, name: str, step_metric: str) -> None:
            asked["metric"] = (name, step_metric)

    def init(**options: Any) -> Run:
        asked.update(options)
        return Run()

    monkeypatch.setattr("wandb.init", init)
    (tmp_path / "sweep.json").write_text('{"name": "awm", "size": "full"}')
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "wandb_id").write_text("abc\n")
    monkeypatch.setenv("WANDB_PROJECT", "of the environment")
    offline(mode="online", entity="team", project=None, tags=[]).start(run_dir, {"seed": 1})
    assert asked["tags"] is None, "else WANDB_TAGS would not count"
    names = ("id", "resume", "mode", "entity", "group", "name", "project")
    found = {key: asked[key] for key in names}
    assert found == {
        "id": "abc",
        "resume": "allow",
        "mode": "online",
        "entity": "team",
        "group": "awm-full",
        "name": "run",
        "project": "of the environment",
    }
    assert asked["metric"] == ("*", "iteration")
    assert logger_links(run_dir) == {"Weights & Biases": "https://metrics.example/abc"}
    assert asked["settings"].finish_timeout > 0
    assert asked["settings"].finish_timeout_raises


def test_steps_are_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[dict[str, float], int]] = []
    logger = offline()

    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            calls.append((values, step))

    monkeypatch.setattr(logger, "run", Run())
    logger.log(7, {"x": 1.0})
    assert calls == [({"iteration": 7, "x": 1.0}, 7)]
