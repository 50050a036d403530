"""A watcher at whose every step a run can be left."""

import pytest

from rlfactory.interruption import Interruptible


class Counter:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def phase(self, name: str, *, total: int) -> None:
        self.told.append((name, total))

    def advance(self, count: int) -> None:
        self.told.append(count)


def test_each_step_is_told_and_then_there_is_a_way_out() -> None:
    counter, asked = Counter(), list[int]()
    watcher = Interruptible(counter, lambda: asked.append(len(counter.told)))
    watcher.phase("sample", total=3)
    watcher.advance(2)
    watcher.advance(0)
    assert counter.told == [("sample", 3), 2], "what is too small is not shown"
    assert asked == [2, 2], "after each step, not before a phase"


def test_the_way_out_is_taken() -> None:
    def leave() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        Interruptible(Counter(), leave).advance(0)
