"""What a multirun is refused for, before its first run."""

import pytest

from rlfactory.multirun_problems import impossible_sweep, sweep_problems


def test_a_slip_in_any_choice_is_named() -> None:
    assert [p.key for p in sweep_problems(["algo=grpo,nft", "algo.clip_range=1e-4"])] == [
        "algo.clip_range"
    ]
    assert sweep_problems(["algo=grpo,nft", "seed=1,2"]) == []


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["seed=1,2", "iterations=0"], "iterations"),
        (["optimizer.lr=x,y"], "optimizer.lr"),
        (["algo=grpo,ddpo", "dynamics=ode"], "dynamics"),
    ],
)
def test_a_sweep_without_a_single_run_is_refused(words: list[str], key: str) -> None:
    assert {p.key for p in impossible_sweep(words)} == {key}


def test_one_run_that_can_be_is_enough() -> None:
    assert impossible_sweep(["group_size=0,4", "hydra.job.chdir=false"]) == []
