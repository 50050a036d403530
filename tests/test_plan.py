"""The arithmetic of a plan, and its folder."""

import re
from pathlib import Path

import pytest

from rlfactory.plan import Plan, make_plan
from rlfactory.request import compose_request


def plan(*overrides: str) -> Plan:
    composed = compose_request(overrides)
    return make_plan(composed.values, composed.choices, composed.problems)


@pytest.mark.parametrize(
    ("words", "items", "evaluations"),
    [
        (["algo=nft", "algo.times=3"], 3, "10 of the network to sample a picture, 3 to learn"),
        (["algo=grpo", "window=all"], 9, "10 of the network to sample a picture, 9 to learn"),
        (
            ["algo=grpo", "window=all", "model.guidance=4.5"],
            9,
            "20 of the network to sample a picture, 18 to",
        ),
        # FLUX's guidance is an input: no second evaluation
        (["model=flux", "algo.times=3"], 3, "6 of the network to sample a picture, 3 to learn"),
        (["algo=grpo", "window=fixed"], 3, "10 of the network to sample a picture, 3 to"),
        (["algo=grpo", "window=random_subset"], 2, "10 of the network"),
        (
            ["algo=grpo", "window=all", "schedule.steps=4"],
            3,
            "4 of the network to sample a picture, 3 to",
        ),
    ],
)
def test_arithmetic(words: list[str], items: int, evaluations: str) -> None:
    budget = ["prompts_per_iteration=3", "group_size=4", "updates_per_iteration=2"]
    derived = plan(*words, *budget, "iterations=5", "micro_batch=7").derived
    assert derived["samples"] == "3 groups x 4 = 12 an iteration, 6 an update"
    assert derived["updates"] == "2 an iteration x 5 = 10"
    batches = -(-6 * items // 7)
    assert derived["micro-batches"] == f"{6 * items} items an update / 7 = {batches} accumulated"
    assert derived["evaluations"].startswith(evaluations)


def test_the_folder_says_what_it_holds() -> None:
    made = plan("algo=grpo", "seed=7").run_dir
    assert made.parent == Path("outputs")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_grpo-tiny_sd3-shapes-s7", made.name)
    assert plan("run_dir=there").run_dir == Path("there")
