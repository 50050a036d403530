"""Rolling back to a savepoint, with stand-ins that only note what they are asked."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlfactory.run.checkpoint import save as save_module
from rlfactory.run.checkpoint.find import Best, newest
from rlfactory.run.disk_errors import DiskError
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.train.checkpointing import savepoint as module
from rlfactory.train.checkpointing.savepoint import (
    BackgroundWriter,
    CheckpointManager,
    Savepoint,
)


class Noting:
    """Stands in for the manager, its writer and the snapshot."""

    def __init__(self, asked: list[Any], saved: int | None = None) -> None:
        self.asked, self.saved, self.writer = asked, saved, self
        self.iteration: int | None = None
        self.fails = False

    def wait(self) -> None:
        self.asked.append("wait")

    def save(self, done: int, *_: object) -> None:
        if self.fails:
            raise OSError("no room")
        self.asked.append(("save", done))

    def take(self, iteration: int, model: object, optimizer: object) -> None:
        self.iteration = iteration
        self.asked.append(("take", iteration))

    def put_back(self, model: object, optimizer: object) -> None:
        self.asked.append("put back")


@pytest.fixture
def asked() -> list[Any]:
    return []


def savepoint(asked: list[Any], done: int, saved: int | None, snapshot: bool = True) -> Any:
    hardware = SimpleNamespace(world_size=1, device=torch.device("cpu"))
    components = SimpleNamespace(model="model", optimizer="optimizer", hardware=hardware)
    trainer: Any = SimpleNamespace(components=components, learner=SimpleNamespace(has_moved=True))
    manager: Any = Noting(asked, saved)
    copy: Any = Noting(asked) if snapshot else None
    state = {"iterations": done, "config": {}}
    made = Savepoint(trainer, manager, lambda: state, copy)
    made.mark()
    assert not trainer.learner.has_moved
    return made


@pytest.mark.parametrize(
    ("done", "saved", "taken"), [(0, None, []), (3, 3, []), (3, 2, [("take", 3)])]
)
def test_a_snapshot_is_taken_unless_a_checkpoint_has_the_state(
    asked: list[Any], done: int, saved: int | None, taken: list[Any]
) -> None:
    made = savepoint(asked, done, saved)
    made.take_snapshot()
    assert asked == taken
    made.trainer.learner.has_moved = True
    assert made.can_stop_now


def test_without_a_snapshot_the_iteration_must_be_finished(asked: list[Any]) -> None:
    made = savepoint(asked, 3, 2, snapshot=False)
    made.take_snapshot()
    assert made.can_stop_now
    made.trainer.learner.has_moved = True
    assert not made.can_stop_now
    made.save_after_error()
    assert asked == []


def test_weights_that_moved_are_rolled_back_before_saving(asked: list[Any]) -> None:
    made = savepoint(asked, 3, 2)
    made.take_snapshot()
    made.trainer.learner.has_moved = True
    made.rollback_and_save()
    assert asked == [("take", 3), "put back", ("save", 3)]
    assert not made.trainer.learner.has_moved


def test_weights_that_did_not_move_are_saved_as_they_are(asked: list[Any]) -> None:
    savepoint(asked, 3, 2).rollback_and_save()
    assert asked == [("save", 3)]


@pytest.mark.parametrize(("done", "saved"), [(0, None), (4, 4)])
def test_the_initial_state_and_a_checkpoint_are_not_saved_again(
    asked: list[Any], done: int, saved: int | None
) -> None:
    savepoint(asked, done, saved).rollback_and_save()
    assert asked == ["wait"]


def test_an_error_of_saving_after_an_error_is_only_logged(
    asked: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = savepoint(asked, 3, 2)
    made.manager.fails = True
    made.save_after_error()
    assert "could not be saved" in caplog.text
    assert "no room" in caplog.text


def broken() -> None:
    raise OSError("disk")


def test_a_job_is_done_while_others_go_on() -> None:
    gate, done = threading.Event(), list[int]()
    writer = BackgroundWriter()
    writer.do(lambda: (gate.wait(10), done.append(1))[1])
    assert done == []
    writer.check()
    gate.set()
    writer.wait()
    assert done == [1]
    writer.close()


def test_a_job_waits_for_the_one_before() -> None:
    done = list[int]()
    writer = BackgroundWriter()
    writer.do(lambda: (time.sleep(0.05), done.append(1))[1])
    writer.do(lambda: done.append(2))
    writer.close()
    assert done == [1, 2]


@pytest.mark.parametrize("call", ["do", "wait", "close"])
def test_an_error_is_raised_by_the_next_call_and_once(call: str) -> None:
    writer = BackgroundWriter()
    writer.do(broken)
    with pytest.raises(OSError, match="disk"):
        getattr(writer, call)(*([broken] if call == "do" else []))
    writer.wait()
    writer.close()


def test_a_check_finds_an_error_once_it_is_there() -> None:
    writer, ended = BackgroundWriter(), threading.Event()
    writer.do(lambda: (ended.set(), broken())[1])
    ended.wait(30)
    time.sleep(0.2)
    with pytest.raises(OSError, match="disk"):
        writer.check()
    writer.close()


def test_without_a_background_everything_happens_at_once() -> None:
    writer, done = BackgroundWriter(background=False), list[int]()
    writer.do(lambda: done.append(1))
    assert done == [1]
    with pytest.raises(OSError, match="disk"):
        writer.do(broken)
    writer.close()


OPTIONS = {"keep": 2, "keep_every": 0, "background": False}


def save(manager: CheckpointManager, done: int) -> None:
    manager.save(done, {"iterations": done}, {"step": done})


@pytest.fixture
def manager_with(
    tmp_path: Path, linear: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CheckpointManager]:
    folder, model = RunFolder.create(tmp_path / "run"), linear()
    monkeypatch.setattr(model, "export", lambda folder, values: None)
    optimizer = torch.optim.SGD(model.weights.parameters.values(), lr=0.1)

    def make(is_main: bool = True, **changes: Any) -> CheckpointManager:
        return CheckpointManager(
            folder,
            OPTIONS | changes,
            Best(folder.checkpoints, "main"),
            model=model,
            optimizer=optimizer,
            exported="policy",
            is_main=is_main,
        )

    return make


def names(manager: CheckpointManager) -> set[str]:
    return {p.name for p in manager.folder.checkpoints.iterdir()}


def test_an_iteration_is_saved_once_and_the_best_is_named(
    manager_with: Callable[..., CheckpointManager],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = manager_with()
    save(made, 3)
    monkeypatch.setattr(module, "begin_checkpoint", None)
    made.best.step, made.best.score = 3, 0.5
    save(made, 3)
    assert names(made) == {"step_000003", "best.json"}


def test_what_could_not_be_written_can_be_tried_again(
    manager_with: Callable[..., CheckpointManager],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk")

    made = manager_with()
    with monkeypatch.context() as patched:
        patched.setattr("rlfactory.run.checkpoint.save.write_manifest", fail)
        with pytest.raises(OSError, match="disk"):
            save(made, 3)
    assert names(made) == set()
    save(made, 3)
    assert names(made) == {"step_000003"}


def test_room_is_asked_for_first(
    manager_with: Callable[..., CheckpointManager],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, needed: int) -> None:
        raise RunFolderError(f"{needed} bytes are needed")

    made = manager_with()
    monkeypatch.setattr(module, "enough_space", full)
    with pytest.raises(RunFolderError, match="bytes are needed"):
        save(made, 3)
    assert names(made) == set()


def test_a_full_disk_is_named_and_the_same_state_can_be_saved_again(
    manager_with: Callable[..., CheckpointManager],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, save_file = manager_with(), save_module.save_file

    def full(tensors: dict[str, torch.Tensor], path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(save_module, "save_file", full)
        with pytest.raises(DiskError, match=r"checkpoint step_000003 could not be .*needed, "):
            save(made, 3)
    assert save_module.save_file is save_file
    assert names(made) == set()
    save(made, 3)
    assert newest(made.folder.checkpoints) is not None


def test_other_ranks_take_part_and_write_nothing(
    manager_with: Callable[..., CheckpointManager],
) -> None:
    made = manager_with(is_main=False)
    save(made, 3)
    assert (made.saved, names(made)) == (3, set())
