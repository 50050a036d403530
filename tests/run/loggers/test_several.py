from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory.run.loggers.base import Logger, SampleTable
from rlfactory.run.loggers.several import Several

CALLS: list[tuple[Any, ...]] = [
    ("resume", {"a": "id of a"}, 3),
    ("restart", Path("run")),
    ("start", Path("run"), {"seed": 1}),
    ("log", 4, {"x": 1.0}),
    ("images", 4, "eval/samples", Path("x.png"), "caption"),
    ("table", 4, "eval/table", SampleTable("t", [], [])),
    ("finish",),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_each_is_told_everything_in_order(
    noting: Callable[..., Logger], call: tuple[Any, ...]
) -> None:
    told: list[Any] = []
    parts = {"b": noting(told, "b"), "a": noting(told, "a"), "unused": noting(told, "unused")}
    name, *args = call
    getattr(Several(of=["a", "b"], parts=parts), name)(*args)
    assert told == [("a", *call), ("b", *call)]


def test_the_state_is_that_of_all(noting: Callable[..., Logger]) -> None:
    parts = {name: noting([], name) for name in ("a", "b")}
    assert Several(of=["a", "b"], parts=parts).state_dict() == {"a": "id of a", "b": "id of b"}
