"""Decays against the peers' own numbers, and what any of them keeps to."""

from typing import Literal

import pytest

from rlfactory.model.decay import cosine, linear, nft, piecewise_linear, power, warmup_cosine

# Provenance: diffusion.md 1.13, return_decay of DiffusionNFT and Flow-Factory's schedules.


@pytest.mark.parametrize(
    ("kind", "step", "expected"),
    [
        ("nft_0", 0, 0.0),
        ("nft_0", 5000, 0.0),
        ("nft_1", 0, 0.0),
        ("nft_1", 100, 0.1),
        ("nft_1", 500, 0.5),
        ("nft_1", 1000, 0.5),
        ("nft_2", 74, 0.0),
        ("nft_2", 75, 0.0),
        ("nft_2", 100, 0.1875),
        ("nft_2", 208, 0.9975),
        ("nft_2", 209, 0.999),
    ],
)
def test_golden_nft(kind: Literal["nft_0", "nft_1", "nft_2"], step: int, expected: float) -> None:
    assert nft(kind, step) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.1), (1, 0.181818), (10, 0.55), (80, 0.9), (5000, 0.9)]
)
def test_golden_power(step: int, expected: float) -> None:
    assert power(step, 0.9) == pytest.approx(expected, abs=1e-6)


def test_a_longer_warm_up_is_slower() -> None:
    assert power(10, 0.9, warmup=90) == pytest.approx(0.11)
    assert power(3, 0.9, warmup=1) == 0.9


@pytest.mark.parametrize(("step", "expected"), [(0, 0.2), (25, 0.375), (50, 0.55), (100, 0.9)])
def test_linear(step: int, expected: float) -> None:
    assert linear(step, 0.9, initial=0.2, warmup=100) == pytest.approx(expected)
    assert linear(step + 100, 0.9, initial=0.2, warmup=100) == 0.9


# Provenance: diffusion.md 1.13, AWM's target of the EMA-KL: min(.3, .001 s)
@pytest.mark.parametrize(("step", "expected"), [(0, 0.0), (100, 0.1), (300, 0.3), (999, 0.3)])
def test_piecewise_linear_is_awms(step: int, expected: float) -> None:
    assert piecewise_linear(step, 0.3) == pytest.approx(expected)
    assert piecewise_linear(step + 40, 0.3, flat=40) == pytest.approx(expected)
    assert piecewise_linear(39, 0.3, flat=40) == 0


# half a cosine: 1/2 (1 - cos 0, 60, 90, 180 degrees) is 0, 1/4, 1/2, 1
@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.5), (20, 0.6), (30, 0.7), (60, 0.9), (999, 0.9)]
)
def test_cosine(step: int, expected: float) -> None:
    assert cosine(step, 0.9, initial=0.5, total=60) == pytest.approx(expected)
    assert warmup_cosine(step + 8, 0.9, initial=0.5, warmup=8, total=68) == pytest.approx(expected)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.0), (2, 0.125), (8, 0.5)])
def test_a_cosine_may_warm_up_from_nothing(step: int, expected: float) -> None:
    assert warmup_cosine(step, 0.9, initial=0.5, warmup=8, total=68) == pytest.approx(expected)


def test_decays_rise_and_stay_below_one() -> None:
    counts = range(2000)
    for values in (
        [nft("nft_1", t) for t in counts],
        [nft("nft_2", t) for t in counts],
        [power(t, 0.99) for t in counts],
        [linear(t, 0.99, 0.1, 700) for t in counts],
        [piecewise_linear(t, 0.99, 300, 0.001) for t in counts],
        [cosine(t, 0.99, 0.1, 1500) for t in counts],
        [warmup_cosine(t, 0.99, 0.1, 300, 1500) for t in counts],
    ):
        assert all(a <= b + 1e-12 for a, b in zip(values, values[1:], strict=False))
        assert 0 <= values[0] < values[-1] < 1
        assert max(b - a for a, b in zip(values, values[1:], strict=False)) < 0.1
