"""Optuna's own ask-and-tell, without its storage."""

import math

import pytest

from rlfactory.problems import PlanError
from rlfactory.sweep import optuna_sweeper
from rlfactory.sweep.optuna_sweeper import ask, require_optuna
from rlfactory.sweep.space import Space, Trial

SPACES = {
    "lr": Space("log", (1e-6, 1.0)),
    "n": Space("int", (1, 4)),
    "a": Space("choice", ("x", "y")),
}


def test_values_are_of_their_spaces_and_the_same_for_the_same_trials() -> None:
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
    monkeypatch.setattr(optuna_sweeper, "find_spec", lambda name: None)
    with pytest.raises(PlanError, match=r"pip install 'rlfactory\[optuna\]'"):
        require_optuna()
