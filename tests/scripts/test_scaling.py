import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "bench"))
from scaling_model import Network, Work, efficiency, reduction, seconds, unevenness

sys.path.pop(0)

FAST = Network(bandwidth=1e11, latency=1e-5)
WORK = Work(groups=48, size=24, updates=1, draw=0.5, learn=0.25, score=0.1)


def test_work_without_waiting_divides() -> None:
    free = Network(bandwidth=float("inf"), latency=0.0)
    assert seconds(WORK, free, 1) == pytest.approx(1152 * 0.85)
    for count in (2, 8, 48):
        assert seconds(WORK, free, count) == pytest.approx(1152 * 0.85 / count)
        assert efficiency(WORK, free, count) == pytest.approx(1.0)


def test_what_nobody_shares_limits_the_gain() -> None:
    work = replace(WORK, fixed=seconds(WORK, FAST, 1) / 10)
    assert efficiency(work, FAST, 48) == pytest.approx(1.1 / (1 + 4.8), rel=1e-3)


def test_a_ring_sends_everything_twice() -> None:
    slow = Network(bandwidth=1e9, latency=0.0)
    assert reduction(1e9, slow, 1) == 0.0
    assert reduction(1e9, slow, 2) == pytest.approx(1.0)
    assert reduction(1e9, slow, 64) == pytest.approx(2.0, rel=0.02)
    assert reduction(0.0, replace(slow, latency=1.0), 3) == pytest.approx(4.0)


def test_one_update_is_even_and_more_are_less_so() -> None:
    assert unevenness(WORK, 8) == unevenness(replace(WORK, updates=4), 1) == 1.0
    found = [unevenness(replace(WORK, updates=n), 8) for n in (2, 4, 16)]
    assert 1.0 < found[0] < found[1] < found[2] < 2.0
    assert unevenness(replace(WORK, updates=2), 8) == found[0], "the same trials every time"
    assert unevenness(replace(WORK, updates=16, is_even=True), 8) == 1.0


def test_two_samples_in_two_updates_of_two_processes() -> None:
    """Both updates have one sample: the one who has it is busy, half the samples each time."""
    work = Work(groups=2, size=1, updates=2, draw=1.0, learn=1.0)
    assert unevenness(work, 2) == 2.0
