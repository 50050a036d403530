"""When a weight set moves, and which clock its schedule counts."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest

from rlfactory.model.averaging import Average, Clock
from rlfactory.model.decay import Schedule, cosine, linear, nft, power, warmup_cosine
from rlfactory.settings import Settings

PLAIN = Average(
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
    assert average.due(update, step=120, iteration=7) == pytest.approx(expected)
    other: Clock = "iteration" if update == "step" else "step"
    assert average.due(other, step=120, iteration=7) is None


def test_an_interval_counts_updates() -> None:
    average = replace(PLAIN, interval=8)
    due = [s for s in range(1, 33) if average.due("step", step=s, iteration=5) is not None]
    assert due == [8, 16, 24, 32]
    after = replace(PLAIN, update="iteration", interval=3)
    assert [after.due("iteration", step=8, iteration=i) is not None for i in range(1, 7)] == (
        [False, False, True] * 2
    )


EXPECTED = {
    "constant": lambda t: 0.9,
    "power": lambda t: power(t, 0.9, 4),
    "linear": lambda t: linear(t, 0.9, 0.2, 4),
    "piecewise_linear": lambda t: max(0.0, min(0.9, 0.1 * (t - 2))),
    "cosine": lambda t: cosine(t, 0.9, 0.2, 9),
    "warmup_cosine": lambda t: warmup_cosine(t, 0.9, 0.2, 4, 9),
    "nft_0": lambda t: 0.0,
    "nft_1": lambda t: nft("nft_1", t),
    "nft_2": lambda t: nft("nft_2", t),
}


@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_every_schedule_reads_its_own_numbers(schedule: Schedule) -> None:
    average = replace(PLAIN, schedule=schedule)
    for t in (0, 1, 3, 4, 5, 8, 9, 30, 90):
        assert average.after(t) == pytest.approx(EXPECTED[schedule](t)), t


def test_the_roots_schema_is_its_constructor() -> None:
    root = get_type_hints(Settings)
    assert root["ema"] is root["old"] is Average
