import math
from collections.abc import Callable

import pytest

from rlfactory.config.schema import signature
from rlfactory.regularizer.coefficient import Coefficient, Fixed, PerStep, Proportional
from rlfactory.utils.types import matches

MODULE = "rlfactory.regularizer.coefficient"
STEERED = ["Proportional", "PerStep"]
Make = Callable[..., Coefficient]


def proportional(value: float = 0.1) -> Proportional:
    return Proportional(value=value, target=6.0, horizon=10_000)


def per_step(value: float = 0.1) -> PerStep:
    return PerStep(value=value, target=0.05, horizon=3200)


def push(coefficient: Coefficient, factor: float, times: int = 1) -> float:
    """Updates at `factor` times the target of both kinds."""
    for _ in range(times):
        coefficient.update(0.05 * factor, 6.0 * factor, 512)
    return coefficient.value


@pytest.mark.parametrize("make", [proportional, per_step])
def test_rises_above_the_target_and_falls_below(make: Make) -> None:
    assert push(make(), 1.1) > 0.1 > push(make(), 0.9)
    assert push(make(), 1.0) == pytest.approx(0.1, rel=1e-12)


@pytest.mark.parametrize(("kl", "change"), [(60.0, 0.01024), (0.0, -0.01024), (6.6, 0.00512)])
def test_openai_figure(kl: float, change: float) -> None:
    """512 episodes at a horizon of 10000: +-1.02 % per update (language.md 1.7)."""
    coefficient = proportional()
    coefficient.update(math.nan, kl, 512)
    assert coefficient.value == pytest.approx(0.1 * (1 + change), rel=1e-9)


def test_walkthrough_figure() -> None:
    """7393 steps to halve at a horizon of 3200 (language.md 1.7), whatever a minibatch holds."""
    coefficient = per_step(0.8)
    for _ in range(7393):
        coefficient.update(0.0, math.nan, 8)
    assert coefficient.value == pytest.approx(0.4, rel=1e-4)
    coefficient.update(0.05 * 1.1, math.nan, 8)
    assert coefficient.value == pytest.approx(0.4 * (1 + 0.1 / 3200), rel=1e-4)


@pytest.mark.parametrize(("factor", "bound"), [(100.0, 10.0), (0.0, 1e-4)])
@pytest.mark.parametrize("value", [1e-4, 10.0])
def test_stays_within_its_bounds(factor: float, bound: float, value: float) -> None:
    coefficient = Proportional(value=value, target=6.0, horizon=512, clip=0.9)
    assert push(coefficient, factor, 100) == bound
    assert push(coefficient, 2 - factor if factor < 1 else 0.0) != bound


@pytest.mark.parametrize("value", [9e-5, 10.1])
@pytest.mark.parametrize("make", [proportional, per_step])
def test_does_not_start_outside_its_bounds(make: Make, value: float) -> None:
    with pytest.raises(ValueError, match="outside its bounds, 0.0001 to 10"):
        make(value)


def test_fixed_does_not_move() -> None:
    coefficient = Fixed(value=0.3)
    assert push(coefficient, 100.0, 10) == 0.3


@pytest.mark.parametrize("make", [proportional, per_step])
def test_goes_on_from_its_state(make: Make) -> None:
    first, second = make(), make()
    push(first, 3.0, 5)
    second.load_state_dict(first.state_dict())
    assert second.value == first.value != 0.1
    assert push(second, 0.5, 5) == push(first, 0.5, 5)


@pytest.mark.parametrize("name", STEERED)
@pytest.mark.parametrize("key", ["target", "horizon"])
def test_the_plan_refuses_a_target_or_horizon_of_zero(name: str, key: str) -> None:
    kind = signature.read_signature(f"{MODULE}.{name}").parameters[key].kind
    assert matches(6, kind)
    assert not matches(0, kind)
    assert not matches(-1, kind)


def test_says_when_to_update() -> None:
    traits = {
        name: signature.read_signature(f"{MODULE}.{name}").class_constants["every"]
        for name in STEERED
    }
    assert traits == {"Proportional": "iteration", "PerStep": "step"}
