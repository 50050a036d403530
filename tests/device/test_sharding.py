"""FSDP2 gathers no more than its passes need, and a checkpoint holds little more than a shard."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from warm_process import Warm

SCRIPT = Path(__file__).with_name("sharding.py")
CASES = {
    "images": ("model=tiny_sd3", "algo=nft", "times.count=2"),
    "texts": ("model=tiny_gpt2", "algo=ppo"),
}
KEPT = ["images", pytest.param("texts", marks=pytest.mark.whole)]
Found = Callable[[str], list[dict[str, float]]]
MOST_HELD = 1.3
"""Shards that a checkpoint may hold besides the live one."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each rank of a case found; see sharding.py."""

    @cache
    def measured(case: str) -> list[dict[str, float]]:
        folder = tmp_path_factory.mktemp(case)
        done = warm.command(folder, *CASES[case], script=str(SCRIPT))
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return measured


@pytest.mark.parametrize("case", KEPT)
def test_a_micro_batch_gathers_for_its_passes_alone(found: Found, case: str) -> None:
    for rank in found(case):
        # each forward pass and the backward gather the network once, and gradients are reduced once
        assert rank["gathered"] <= rank["passes"] + 1 + 0.01
        assert rank["scattered"] <= 1.01


@pytest.mark.parametrize("case", KEPT)
def test_no_process_has_the_whole_network_while_it_learns(found: Found, case: str) -> None:
    assert all(rank["unsharded"] < 0.9 for rank in found(case))


@pytest.mark.parametrize("case", KEPT)
def test_a_checkpoint_holds_little_more_than_a_shard(found: Found, case: str) -> None:
    assert all(rank["held"] <= MOST_HELD for rank in found(case))
