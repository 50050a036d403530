"""What a run folder keeps of an object in memory."""

from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from rlfactory.utils.live_objects import LiveObjectError, describe, live_objects, resolve


class Settings:
    """An object with plain values."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold


class Loaded(Settings):
    """An object that was loaded from somewhere."""

    name_or_path = "owner/model"


def test_a_description_says_what_it_is_and_where_it_is_defined() -> None:
    here = rf"{__file__}:"
    assert describe(test_a_description_says_what_it_is_and_where_it_is_defined).count(here) == 1
    assert f"{__name__}.Settings(threshold=0.5) ({here}" in describe(Settings(0.5))
    assert f"{__name__}.Settings ({here}" in describe(Settings)
    assert "Loaded owner/model (" in describe(Loaded(1.0))
    assert describe((Settings(0.5), Loaded(1.0))).count(here) == 2
    assert describe([1, 2]) == "builtins.list of 2"
    assert describe(SimpleNamespace(inner=object())) == "types.SimpleNamespace"


def test_an_object_has_its_name_inside_the_block_alone() -> None:
    with live_objects({"a": 1}):
        assert resolve("object:a") == 1
        with live_objects({"b": 2}):
            assert (resolve("object:a"), resolve("object:b")) == (1, 2)
    with pytest.raises(LiveObjectError, match=r"resume\(a=...\)"):
        resolve("object:a")


def test_threads_take_turns() -> None:
    found: list[Any] = []
    entered = Event()

    def other() -> None:
        with live_objects({"a": 2}):
            entered.set()
            found.append(resolve("object:a"))

    with live_objects({"a": 1}):
        (thread := Thread(target=other)).start()
        assert not entered.wait(0.2)
        assert resolve("object:a") == 1
    thread.join()
    assert found == [2]
