"""The way back to a border, with parts that only note what they are asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from rlfactory.border import Border


class Noting:
    """Stands in for the keeper, its writer and the snapshot."""

    def __init__(self, asked: list[Any], saved: int | None = None) -> None:
        self.asked, self.saved, self.writer = asked, saved, self
        self.iteration: int | None = None
        self.fails = False

    def wait(self) -> None:
        self.asked.append("wait")

    def save(self, done: int, state: object, model: object, exported: str, *_: object) -> None:
        if self.fails:
            raise OSError("no room")
        self.asked.append(("save", done, exported))

    def take(self, iteration: int, model: object, optimizer: object) -> None:
        self.iteration = iteration
        self.asked.append(("take", iteration))

    def put_back(self, model: object, optimizer: object) -> None:
        self.asked.append("put back")


@pytest.fixture
def asked() -> list[Any]:
    return []


def border(asked: list[Any], done: int, saved: int | None, snapshot: bool = True) -> Any:
    hardware = SimpleNamespace(world_size=1)
    parts = SimpleNamespace(model="model", optimizer="optimizer", hardware=hardware)
    trainer = SimpleNamespace(parts=parts, learner=SimpleNamespace(has_moved=True))
    keeper: Any = Noting(asked, saved)
    made = Border(trainer, keeper, "ema", Noting(asked) if snapshot else None)  # type: ignore[arg-type]
    made.note({"iterations": done, "config": {}})
    assert not trainer.learner.has_moved
    return made


@pytest.mark.parametrize(
    ("done", "saved", "taken"), [(0, None, []), (3, 3, []), (3, 2, [("take", 3)])]
)
def test_a_copy_is_held_where_there_is_no_other_way_back(
    asked: list[Any], done: int, saved: int | None, taken: list[Any]
) -> None:
    made = border(asked, done, saved)
    made.hold()
    assert asked == taken
    made.trainer.learner.has_moved = True
    assert made.is_near


def test_without_a_copy_an_iteration_is_to_be_ended(asked: list[Any]) -> None:
    made = border(asked, 3, 2, snapshot=False)
    made.hold()
    assert made.is_near
    made.trainer.learner.has_moved = True
    assert not made.is_near
    made.rescue()
    assert asked == []


def test_what_moved_is_put_back_before_it_is_saved(asked: list[Any]) -> None:
    made = border(asked, 3, 2)
    made.hold()
    made.trainer.learner.has_moved = True
    made.keep()
    assert asked == [("take", 3), "put back", ("save", 3, "ema")]
    assert not made.trainer.learner.has_moved


def test_what_did_not_move_is_saved_as_it_is(asked: list[Any]) -> None:
    border(asked, 3, 2).keep()
    assert asked == [("save", 3, "ema")]


@pytest.mark.parametrize(("done", "saved"), [(0, None), (4, 4)])
def test_a_beginning_and_a_checkpoint_need_none(
    asked: list[Any], done: int, saved: int | None
) -> None:
    border(asked, done, saved).keep()
    assert asked == ["wait"]


def test_a_rescue_that_fails_hides_no_error(
    asked: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = border(asked, 3, 2)
    made.keeper.fails = True
    made.rescue()
    assert "could not be saved" in caplog.text
    assert "no room" in caplog.text
