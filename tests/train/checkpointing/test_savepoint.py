"""Rolling back to a savepoint, with stand-ins that only note what they are asked."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlfactory.train.checkpointing.savepoint import Savepoint


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

    def before_moving(self) -> None:
        self.asked.append("before moving")

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
    if snapshot:
        assert trainer.learner.before_moving == copy.before_moving
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
