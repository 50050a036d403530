"""Other models and precisions at every point of the loop, and the points beside the loop."""

import importlib.util
from pathlib import Path

import pytest
from faulty.points import CHAIN, killed_and_ended
from faulty.runs import ALGORITHMS, OTHERS, words

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
BESIDE = ("scoring:kill:4", "renaming:kill", "evaluating:kill")
REMOVING = ("iterations=3", "checkpoint.keep=1", "checkpoint.best=false", "evaluation.every=0")


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("fp16", CHAIN[::3]),  # its scale of losses is state of its own
        ("8-bit", CHAIN[1::3]),
        *(pytest.param(name, CHAIN, marks=pytest.mark.whole) for name in OTHERS),
    ],
)
def test_others_killed_at_each_point_end_bit_for_bit(
    name: str, points: tuple[str, ...], tmp_path: Path
) -> None:
    if name == "8-bit" and importlib.util.find_spec("bitsandbytes") is None:
        pytest.skip("needs bitsandbytes: pip install 'rlfactory[gpu]'")
    assert killed_and_ended(OTHERS[name], tmp_path, points) == []


@pytest.mark.parametrize("name", [pytest.param("nft", marks=pytest.mark.whole), "ppo"])
def test_the_points_beside_the_loop_lose_nothing_either(name: str, tmp_path: Path) -> None:
    assert killed_and_ended(ALGORITHMS[name], tmp_path, BESIDE) == []


def test_what_was_half_removed_is_gone(tmp_path: Path) -> None:
    given = words(*ALGORITHMS["nft"], *REMOVING)
    assert killed_and_ended(given, tmp_path, ["removing:kill"]) == []
