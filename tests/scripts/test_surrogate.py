"""What is measured of V-GRPO's surrogate, and the tables of it."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts"


def module(folder: str, name: str) -> ModuleType:
    sys.path.insert(0, str(SCRIPTS / folder))
    known = sys.modules.pop(name, None)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SCRIPTS / folder))
        sys.modules.pop(name, None)
        if known is not None:
            sys.modules[name] = known


BENCH, DOCS = module("bench", "surrogate"), module("docs", "surrogate")


def test_variation_is_the_deviation_over_the_mean() -> None:
    within, overall = BENCH.variation(torch.tensor([1.0, 3.0, 4.0, 8.0]), 2)
    assert within == pytest.approx((2**0.5 / 2 + 8**0.5 / 6) / 2)
    assert overall == pytest.approx(np.std([1, 3, 4, 8], ddof=1) / 4)


def test_even_times_are_the_middles_of_bins() -> None:
    times = BENCH.EvenTimes(4).draw(torch.rand(2, 4), torch.tensor([1.0, 0.0]))
    assert torch.equal(times, torch.tensor([[0.125, 0.375, 0.625, 0.875]] * 2))


class Linear:
    """Two samples at two times each, with the likelihood `-(w · values)`."""

    values = torch.tensor([[[3.0, 0.0], [5.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]])

    def __init__(self) -> None:
        self.w = torch.tensor([1.0, 2.0], requires_grad=True)
        self.t = torch.zeros(2, 2)

    def split(self, size: int) -> Iterator[torch.Tensor]:
        return iter(self.values.flatten(0, 1).split(size))

    def log_likelihoods(self, model: object, batch: torch.Tensor) -> torch.Tensor:
        return -(batch @ self.w)


def test_gradients_are_those_of_each_samples_mean_loss() -> None:
    linear = Linear()
    values, norms = BENCH.gradient_norms(linear, None, linear, [linear.w])
    assert values == pytest.approx([(3 + 9) / 2, 3])
    assert norms == pytest.approx([(4**2 + 1**2) ** 0.5, 2**0.5])
    assert BENCH.losses(linear, None, linear).tolist() == [[3, 9], [3, 3]]


def test_settings_switch_one_reduction_each() -> None:
    sigmas = torch.tensor([1.0, 0.5, 0.0])
    made = {name: BENCH.make(*on, sigmas) for name, on in BENCH.SETTINGS.items()}
    kept = {
        name: (a.shared_noise, a.times.shared == "group", a.times.stratified, a.adaptive)
        for name, a in made.items()
    }
    assert kept["full"] == (True, True, True, True)
    assert kept["own pairs"] == (False, False, True, True)
    assert kept["not stratified"] == (True, True, False, True)
    assert kept["not adaptive"] == (True, True, True, False)
    assert kept["naive"] == (False, False, False, False)


def test_r2_is_that_of_a_parabola() -> None:
    x = np.linspace(0, 1, 9)
    coefficients, fit = DOCS.quadratic_fit(x, 3 * x**2 - x + 2)
    assert fit == pytest.approx(1)
    assert coefficients == pytest.approx([3, -1, 2])
    _, none = DOCS.quadratic_fit(np.array([-1.0, 0, 1, -1, 0, 1]), np.array([1.0, 1, 1, 3, 3, 3]))
    assert none == pytest.approx(0)


def rollout(within: float, norms: list[float]) -> dict[str, object]:
    return {
        "variation": {"full": [within, 0.5]},
        "times": {"x": [[1.0, 2.0, 8.0], [1.0, 1.0, 9.0]]},
        "gradients": {
            "full": [[1.0, 2.0, 3.0], norms],
            "naive": [[1.0, 2.0, 3.0], [1.0, 4.0, 9.0]],
        },
    }


def test_statistics_are_of_all_rollouts() -> None:
    found = [rollout(0.1, [1.0, 2.0, 3.0]), rollout(0.3, [3.0, 2.0, 1.0])]
    assert DOCS.variation_of("full", 0)(found) == pytest.approx(0.2)
    assert DOCS.spread_of("x", 0)(found) == 8
    assert DOCS.spread_of("x", 1)(found) == 9
    # the two lines cancel, the parabola is exact
    assert DOCS.fit_change(found) == pytest.approx(0 - 1)
    low, high = DOCS.interval(found, DOCS.variation_of("full", 0))
    assert (low, high) == (pytest.approx(0.1), pytest.approx(0.3))


@pytest.mark.parametrize(
    ("ends", "word"), [((-0.2, -0.1), "lower"), ((0.1, 0.2), "higher"), ((-0.1, 0.1), "undecided")]
)
def test_the_verdict_follows_from_the_interval(ends: tuple[float, float], word: str) -> None:
    assert word in DOCS.verdict(*ends)


def test_the_page_is_what_is_stored() -> None:
    text = DOCS.text()
    assert all(label in text for label in DOCS.LABELS.values())
    assert DOCS.TIMES_FIGURE.is_file()
    assert DOCS.GRADIENTS_FIGURE.is_file()
    assert len(DOCS.read()["rollouts"]) >= 5
