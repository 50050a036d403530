"""Optuna's samplers, without its storage."""

import math

import pytest

from rlfactory.config.problems import PlanError
from rlfactory.sweep import search
from rlfactory.sweep.search import (
    Space,
    Trial,
    ask,
    draw_random,
    require_optuna,
    space,
    typed_space,
)


def test_each_kind_in_a_file() -> None:
    assert space("k", {"log": ["1e-6", "1e-2"]}) == Space("log", (1e-6, 1e-2))
    assert space("k", {"uniform": [-1, 3]}) == Space("uniform", (-1.0, 3.0))
    assert space("k", {"int": [2, 4]}) == Space("int", (2, 4))
    assert space("k", {"choice": ["a", "b"]}) == Space("choice", ("a", "b"))


def test_spaces_can_be_typed() -> None:
    assert typed_space("k", "log(1e-6, 1e-3)") == Space("log", (1e-6, 1e-3))
    assert typed_space("k", "int(1,8)") == Space("int", (1, 8))
    assert typed_space("k", "choice(a,b)") == Space("choice", ("a", "b"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1e-3", "allowed are log"),
        ("norm(0,1)", "allowed are log"),
        ("log(1,)", "two numbers, the lower first"),
        ("log(0,1)", "both above 0"),
        ("uniform(2,1)", "the lower first"),
        ("int(1.5,2)", "two numbers"),
        ("uniform(1,2,3)", "two numbers"),
        ("uniform(0,inf)", "two numbers"),
    ],
)
def test_what_is_no_space(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=r"search\.k") as refused:
        typed_space("k", text)
    assert said in str(refused.value)


def test_a_file_has_a_mapping_of_one() -> None:
    for node in (3, {}, {"log": [1, 2], "int": [1, 2]}, {"choice": []}):
        with pytest.raises(PlanError, match="allowed are log"):
            space("k", node)


SPACES = {
    "lr": Space("log", (1e-6, 1.0)),
    "n": Space("int", (1, 4)),
    "a": Space("choice", ("x", "y")),
}


def test_random_values_are_in_their_spaces_and_the_same_for_the_same_seed() -> None:
    pytest.importorskip("optuna")
    drawn = draw_random(SPACES, 200, seed="row")
    assert drawn[:50] == draw_random(SPACES, 50, seed="row")
    assert drawn != draw_random(SPACES, 200, seed="other")
    for values in drawn:
        assert 1e-6 <= values["lr"] <= 1
        assert float(f"{values['lr']:.6g}") == values["lr"]  # short enough to be typed
    assert {values["n"] for values in drawn} == {1, 2, 3, 4}
    assert {values["a"] for values in drawn} == {"x", "y"}
    below = sum(values["lr"] < 1e-3 for values in drawn) / len(drawn)
    assert math.isclose(below, 0.5, abs_tol=0.1)  # even on a logarithmic scale


def test_rounded_values_stay_within_their_space() -> None:
    pytest.importorskip("optuna")
    low, high = 0.12345678, 0.12345679
    for values in draw_random({"x": Space("uniform", (low, high))}, 20, seed="row"):
        assert low <= values["x"] <= high


def test_asked_values_are_in_their_spaces_and_the_same_for_the_same_trials() -> None:
    pytest.importorskip("optuna")
    first = ask(SPACES, [], "higher", 3, seed="row")
    assert first == ask(SPACES, [], "higher", 3, seed="row")
    assert first != ask(SPACES, [], "higher", 3, seed="other")
    for values in first:
        assert 1e-6 <= values["lr"] <= 1
        assert values["n"] in range(1, 5)
        assert values["a"] in ("x", "y")
    told = [Trial("row", 0, first[0], 1.0), Trial("row", 1, first[1], math.nan)]
    assert ask(SPACES, told, "higher", 1, seed="row") == ask(SPACES, told, "higher", 1, seed="row")
    assert ask(SPACES, told, "higher", 0, seed="row") == []


@pytest.mark.parametrize(("better", "sign"), [("higher", -1), ("lower", 1)])
def test_it_comes_nearer_to_the_best(better: str, sign: int) -> None:
    pytest.importorskip("optuna")
    space, told = {"x": Space("uniform", (0.0, 1.0))}, []
    for i in range(25):
        (values,) = ask(space, told, better, 1, seed="r")
        told.append(Trial("r", i, values, sign * (values["x"] - 0.8) ** 2))
    late = [abs(trial.values["x"] - 0.8) for trial in told[15:]]
    assert sorted(late)[5] < 0.15


def test_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    with pytest.raises(PlanError, match=r"pip install 'rlfactory\[optuna\]'"):
        require_optuna()
