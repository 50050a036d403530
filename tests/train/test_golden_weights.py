"""Weights are what they were after three iterations, also where the run was paused and resumed."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from load_script import load_script

from rlfactory.config.options import options

SCRIPT = Path(__file__).parents[2] / "scripts" / "golden" / "weights.py"
weights: ModuleType = load_script(SCRIPT, "golden_weights")
MACHINE, STORED = weights.stored()
COMPARES_BITS = weights.machine() == MACHINE
QUICK = [("grpo", "split"), ("ppo", "whole")]


def cases(layout: str, each: int = 1) -> list[Any]:
    """Every `each`-th algorithm in `layout`; all in both where all cases are asked for."""
    kept = [key for key in STORED if key[1] == layout][::each]
    return [pytest.param(*key, marks=() if key in kept else pytest.mark.whole) for key in STORED]


def agrees(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Fail unless a run has the stored bits, or came as far on another kind of machine."""
    # rounding differs there, and Adam makes much of the smallest gradients
    assert found["norm"] == pytest.approx(expected["norm"], rel=1e-5)
    assert found["moved"] == pytest.approx(expected["moved"], rel=0.02)
    if COMPARES_BITS:
        assert found["sha256"] == expected["sha256"]


@pytest.mark.parametrize(("algorithm", "layout"), QUICK)
def test_some_weights_are_as_stored(algorithm: str, layout: str) -> None:
    found = weights.trained(weights.words_of(algorithm, layout))
    agrees(found, STORED[algorithm, layout])


@pytest.mark.slow
# bits tell whether a resumed run's formula has changed, and layouts are the learner's alone
@pytest.mark.parametrize(("algorithm", "layout"), cases("whole", each=3 if COMPARES_BITS else 1))
def test_weights_are_as_stored(algorithm: str, layout: str) -> None:
    found = weights.trained(weights.words_of(algorithm, layout))
    agrees(found, STORED[algorithm, layout])


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "layout"), cases("split"))
def test_a_resumed_run_has_the_same_weights(algorithm: str, layout: str) -> None:
    found, expected = weights.trained(weights.words_of(algorithm, layout), pause=2), STORED
    assert found["norm"] == pytest.approx(expected[algorithm, layout]["norm"], rel=1e-5)
    if COMPARES_BITS:
        assert found["sha256"] == expected[algorithm, layout]["sha256"]


def test_every_algorithm_is_stored_in_two_layouts() -> None:
    assert {*STORED} == {(name, layout) for name in options("algo") for layout in weights.LAYOUTS}
    assert all(found["moved"] > 0.01 for found in STORED.values())
    assert len({found["sha256"] for found in STORED.values()}) == len(STORED)


def test_a_bit_is_seen() -> None:
    first = {"w": torch.zeros(3)}
    near = {"w": torch.tensor([1.0, 2.0, 3.0])}
    other = {"w": torch.nextafter(near["w"], torch.tensor(9.0))}
    one, two = weights.summary(first, near), weights.summary(first, other)
    assert one["sha256"] != two["sha256"]
    assert one["moved"] == pytest.approx(two["moved"])
