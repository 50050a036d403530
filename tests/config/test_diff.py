"""Where two configurations differ."""

from typing import Any

import pytest

from rlfactory.config.diff import MISSING, differences, format_diff

BEFORE: dict[str, Any] = {
    "seed": 0,
    "algo": {"_target_": "x.NFT", "beta": 0.1},
    "stop": {"kl": None},
    "trust": [],
    "run_dir": "a",
    "choices": {"algo": "nft"},
}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"run_dir": "b"}, []),
        ({"seed": 1}, [("seed", 0, 1)]),
        ({"seed": False}, [("seed", 0, False)]),
        ({"stop": {"kl": 0.5}}, [("stop.kl", None, 0.5)]),
        ({"trust": ["x"]}, [("trust", [], ["x"])]),
        ({"stop": {}}, [("stop.kl", None, MISSING)]),
        ({"more": 1}, [("more", MISSING, 1)]),
        ({"algo": {"_target_": "x.NFT", "beta": 0.2}}, [("algo.beta", 0.1, 0.2)]),
        ({"algo": {"_target_": "x.AWM"}, "choices": {"algo": "awm"}}, [("algo", "nft", "awm")]),
        # an option under another name that says the same
        ({"choices": {"algo": "mine"}}, []),
    ],
    ids=str,
)
def test_each_key_that_differs_is_named(changes: dict[str, Any], found: list[object]) -> None:
    assert differences(BEFORE, {**BEFORE, **changes}) == found


def test_they_are_told_as_they_are_typed() -> None:
    assert format_diff([("a.b", None, 0.5), ("c", True, "x")]) == "a.b: null -> 0.5, c: true -> x"


def test_an_older_run_may_lack_what_changes_no_result() -> None:
    old, new = {"seed": 1, "checkpoint": {"keep": 2}}, {"seed": 1, "checkpoint": {"keep": 2}}
    assert list(differences(old, {**new, "checkpoint": {"keep": 2, "patience": 30}})) == []
    assert list(differences({"seed": 1}, {**new, "guard": {"limit": 1}})) == []
    removed = {**old, "checkpoint": {"keep": 2, "on_error": "wait"}}
    assert list(differences(removed, new)) == []
    assert differences(old, {**new, "tail": None}) == [("tail", MISSING, None)]
    assert differences(old, {**new, "checkpoint": {"keep": 3}}) == [("checkpoint.keep", 2, 3)]
