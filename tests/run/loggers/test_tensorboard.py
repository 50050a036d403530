import builtins
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rlfactory.run.loggers import NoLogger, TensorBoard, Wandb


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "picture.png"
    Image.new("RGB", (8, 4), "red").save(path)
    return path


def test_no_logger_leaves_nothing(tmp_path: Path) -> None:
    logger = NoLogger()
    logger.start(tmp_path, {})
    logger.log(0, {"x": 1.0})
    logger.finish()
    assert list(tmp_path.iterdir()) == []


def test_wandb_offline_keeps_one_id_over_two_starts(tmp_path: Path, picture: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    for iteration in range(2):
        logger = Wandb(project="p", mode="offline", entity=None, tags=["t"])
        logger.start(run_dir, {"seed": iteration})
        logger.log(iteration, {"loss/policy": 0.5})
        logger.images(iteration, "samples", picture)
        logger.finish()
    stored = (run_dir / "wandb_id").read_text().strip()
    folders = list((run_dir / "wandb").glob("offline-run-*"))
    assert folders
    assert all(folder.name.endswith(stored) for folder in folders)


def test_wandb_goes_on_by_the_id_that_was_saved(tmp_path: Path) -> None:
    first, second = (Wandb(project="p", mode="offline", entity=None, tags=[]) for _ in range(2))
    first.start(tmp_path, {})
    first.finish()
    (tmp_path / "wandb_id").unlink()
    second.go_on(first.state_dict(), 3)
    second.start(tmp_path, {})
    second.finish()
    assert second.state_dict() == first.state_dict()
    assert (tmp_path / "wandb_id").read_text().strip() == first.state_dict()["wandb"]


def test_wandb_steps_are_iterations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[dict[str, float], int]] = []
    logger = Wandb(project="p", mode="offline", entity=None, tags=[])

    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            calls.append((values, step))

    monkeypatch.setattr(logger, "_run", Run())
    logger.log(7, {"x": 1.0})
    assert calls == [({"iteration": 7, "x": 1.0}, 7)]


def test_tensorboard_writes_scalars_and_pictures(tmp_path: Path, picture: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoard()
    logger.start(tmp_path, {"seed": 0})
    for i in range(3):
        logger.log(i, {"reward/shapes/mean": i / 2})
    logger.images(2, "samples", picture)
    logger.finish()
    logger.finish()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    points = [(e.step, e.value) for e in events.Scalars("reward/shapes/mean")]
    assert points == [(0, 0.0), (1, 0.5), (2, 1.0)]
    (image,) = events.Images("samples")
    assert (image.step, image.width, image.height) == (2, 8, 4)


def test_tensorboard_replaces_what_was_logged_after_a_checkpoint(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for sitting in range(2):
        logger = TensorBoard()
        if sitting:
            logger.go_on({}, 1)
        logger.start(tmp_path, {})
        for i in range(2 if sitting else 0, 3):
            logger.log(i, {"x": float(sitting)})
        logger.finish()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("x")] == [(0, 0.0), (1, 0.0), (2, 1.0)]


def test_a_missing_tensorboard_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"rlfactory\[tensorboard\]"):
        TensorBoard()


def test_wandb_and_torch_are_not_imported_before_they_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def watch(name: str, *args: Any) -> Any:
        assert name.split(".")[0] not in ("wandb", "torch"), name
        return real(name, *args)

    monkeypatch.delitem(sys.modules, "rlfactory.run.loggers")
    monkeypatch.setattr(builtins, "__import__", watch)
    importlib.import_module("rlfactory.run.loggers").Wandb(
        project="p", mode="online", entity=None, tags=[]
    )
