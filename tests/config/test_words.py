"""Values as they are typed, and words as they are read."""

from pathlib import Path

import pytest

from rlfactory.config._hydra import parse
from rlfactory.config.problems import Problem
from rlfactory.config.words import read, searched, typed_value


@pytest.mark.parametrize(
    "value",
    [
        3,
        1e-5,
        True,
        None,
        "plain",
        "a/b-c.d:e",
        "a/ü",
        "it's a 'text'",
        [1, "a b"],
        "a,b",
        "",
        {},
        {"a": [1]},
    ],
)
def test_values_are_read_back(value: object) -> None:
    assert parse([f"key={typed_value(value)}"])[0].value() == value


def test_paths_are_texts() -> None:
    assert typed_value(Path("a/b")) == "a/b"


@pytest.mark.parametrize(
    ("word", "places"),
    [
        ("hydra.searchpath=[a,'b c']", ["a", "b c"]),
        ("hydra.searchpath=a", ["a"]),
        ("seed=1", []),
        ("hydra.searchpath=[", []),
    ],
)
def test_search_paths(word: str, places: list[str]) -> None:
    assert searched([word]) == places


@pytest.mark.parametrize("key", ["run.dir", "sweep.dir", "job.chdir", "sweep.subdir"])
def test_keys_of_hydra_that_would_change_nothing_are_refused(key: str) -> None:
    problems: list[Problem] = []
    assert read(f"hydra.{key}=a", problems) is None
    (problem,) = problems
    assert problem.instead == (("run_dir=a",) if key.endswith(".dir") else ())
