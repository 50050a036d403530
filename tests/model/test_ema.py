"""EMA schedules: when a weight set is updated, which clock counts, and the decays of the peers."""

from dataclasses import replace
from typing import Literal, get_args, get_type_hints

import pytest

from rlfactory.config.schema.root import RootConfig
from rlfactory.model.ema import (
    Clock,
    EMASchedule,
    Schedule,
    cosine,
    linear,
    piecewise_linear,
    power,
    warmup_cosine,
)

PLAIN = EMASchedule(
    schedule="nft_1",
    decay=0.9,
    initial=0.2,
    warmup=4,
    flat=2,
    ramp=0.1,
    total=9,
    clock="step",
    update="step",
    interval=1,
)


@pytest.mark.parametrize("clock", ["step", "iteration"])
@pytest.mark.parametrize("update", ["step", "iteration"])
def test_the_schedules_clock_is_not_the_moment_it_moves(clock: Clock, update: Clock) -> None:
    average = replace(PLAIN, clock=clock, update=update)
    expected = {"step": 0.12, "iteration": 0.007}[clock]
    assert average.decay_at(update, step=120, iteration=7) == pytest.approx(expected)
    other: Clock = "iteration" if update == "step" else "step"
    assert average.decay_at(other, step=120, iteration=7) is None


def test_an_interval_counts_updates() -> None:
    average = replace(PLAIN, interval=8)
    due = [s for s in range(1, 33) if average.decay_at("step", step=s, iteration=5) is not None]
    assert due == [8, 16, 24, 32]
    after = replace(PLAIN, update="iteration", interval=3)
    assert [after.decay_at("iteration", step=8, iteration=i) is not None for i in range(1, 7)] == (
        [False, False, True] * 2
    )


def test_flow_grpo_updates_a_step_earlier_and_flow_factory_counts_an_epoch_less() -> None:
    """Both ask `(t + 1) % interval == 0`: of completed steps, and of epochs from 0."""
    average = replace(PLAIN, schedule="power", warmup=10, interval=8)
    steps = [s for s in range(1, 40) if average.decay_at("step", step=s, iteration=1) is not None]
    assert [s for s in range(1, 39) if (s + 1) % 8 == 0] == [s - 1 for s in steps]
    epochs = replace(average, clock="iteration", update="iteration", interval=3)
    for epoch in range(9):
        decay = epochs.decay_at("iteration", step=0, iteration=epoch + 1)
        assert (decay is not None) == ((epoch + 1) % 3 == 0)
        assert decay in (None, power(epoch + 1, 0.9))
    assert (power(0, 0.9), power(1, 0.9)) == (0.1, 2 / 11)


EXPECTED = {
    "constant": lambda t: 0.9,
    "power": lambda t: power(t, 0.9, 4),
    "linear": lambda t: linear(t, 0.9, 0.2, 4),
    "piecewise_linear": lambda t: max(0.0, min(0.9, 0.1 * (t - 2))),
    "cosine": lambda t: cosine(t, 0.9, 0.2, 9),
    "warmup_cosine": lambda t: warmup_cosine(t, 0.9, 0.2, 4, 9),
    "nft_0": lambda t: 0.0,
    "nft_1": lambda t: min(0.001 * t, 0.5),
    "nft_2": lambda t: min(max(0.0, 0.0075 * (t - 75)), 0.999),
}


@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_every_schedule_reads_its_own_numbers(schedule: Schedule) -> None:
    average = replace(PLAIN, schedule=schedule)
    for t in (0, 1, 3, 4, 5, 8, 9, 30, 90):
        assert average.after(t) == pytest.approx(EXPECTED[schedule](t)), t


def test_the_roots_schema_is_its_constructor() -> None:
    root = get_type_hints(RootConfig)
    assert root["ema"] is root["old"] is EMASchedule


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
    assert replace(PLAIN, schedule=kind).after(step) == pytest.approx(expected, abs=1e-9)


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
        [replace(PLAIN, schedule="nft_1").after(t) for t in counts],
        [replace(PLAIN, schedule="nft_2").after(t) for t in counts],
        [power(t, 0.99) for t in counts],
        [linear(t, 0.99, 0.1, 700) for t in counts],
        [piecewise_linear(t, 0.99, 300, 0.001) for t in counts],
        [cosine(t, 0.99, 0.1, 1500) for t in counts],
        [warmup_cosine(t, 0.99, 0.1, 300, 1500) for t in counts],
    ):
        assert all(a <= b + 1e-12 for a, b in zip(values, values[1:], strict=False))
        assert 0 <= values[0] < values[-1] < 1
        assert max(b - a for a, b in zip(values, values[1:], strict=False)) < 0.1
