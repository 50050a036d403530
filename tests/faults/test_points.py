"""Every algorithm, killed at a point of its loop, ends bit for bit as if it had not been.

One of images and one of texts is killed at every point, and all are by `--whole`.
"""

from pathlib import Path

import pytest
from faulty.points import CHAIN, killed_and_ended
from faulty.runs import ALGORITHMS

from rlfactory.config.options import describe_options

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


OF_OTHER_DATA = ("diffusion_dpo_offline", "sft")
"""What learns from pairs and texts; loop, state and batches of the others are those of `WHOLLY`,
and tests/train/test_standards.py resumes each of them."""
WHOLLY = ("nft", "ppo")
ONE_EACH = [(name, (CHAIN[i % len(CHAIN)],)) for i, name in enumerate(OF_OTHER_DATA)]


@pytest.mark.parametrize(
    ("name", "points"),
    [
        *ONE_EACH,
        *(
            pytest.param(name, CHAIN, marks=() if name in WHOLLY else pytest.mark.whole)
            for name in ALGORITHMS
        ),
    ],
)
def test_an_algorithm_killed_at_each_point_ends_bit_for_bit(
    name: str, points: tuple[str, ...], tmp_path: Path
) -> None:
    assert killed_and_ended(ALGORITHMS[name], tmp_path, points) == []


def test_no_algorithm_is_left_out() -> None:
    assert sorted(ALGORITHMS) == sorted(describe_options("algo", []))
