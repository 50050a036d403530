"""Each algorithm trains each family on the pretended device: no tensor meets one of another."""

import importlib
import itertools
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pretended.client import Pretended

DOCS = str(Path(__file__).parents[2] / "scripts" / "docs")
sys.path.insert(0, DOCS)
matrix = importlib.import_module("matrix")
sys.path.remove(DOCS)

PRECISIONS = ("bf16", "fp16", "fp32", "bf16_rollout")
REPLAYING = {"grpo", "branch_grpo", "grpo_guard", "flow_dppo", "ddpo", "ddpo_sf"}
"""Ratios of replayed steps begin at 1, so they can't learn in another precision than they draw."""
SMALL_TREE = ("branches=2", "tree.splits=[0]")
"""A tree as large as the groups of these runs."""
GRADED = ("reward=compressibility", "prompts=shapes")
"""A score that differs within each small group, so that there are pairs to learn from."""
OF_FULL_SIZE = (
    *("recipe=none", "reward=compressibility", "prompts=shapes", "evaluation.prompts=2"),
    *("prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1", "schedule.steps=6"),
    *("micro_batch=4", "sample_batch=4", "evaluation.steps=null"),
)
"""What makes a run small of a family of which no small model ships."""
FINETUNES, MEMORIES = ("lora", "full"), ("roomy", "low")
Row = tuple[str, str, str, str, str]


@cache
def covering() -> dict[Row, tuple[str, ...]]:
    """For each pair of model and algorithm a precision, finetune and memory, so that each two
    values of different choices occur together somewhere, except those of an algorithm.

    Returns:
        Of each row the words that the pair needs besides.
    """
    options = list(itertools.product(PRECISIONS, FINETUNES, MEMORIES))
    met: set[frozenset[tuple[int, str]]] = set()
    rows = {}
    for model, algorithm, more in matrix.allowed():

        def pairs(option: tuple[str, ...], model: str = model) -> set[Any]:
            values = enumerate((model, *option))
            return {frozenset(two) for two in itertools.combinations(values, 2)}

        allowed = [o for o in options if not (o[0] == "bf16_rollout" and algorithm in REPLAYING)]
        best = max(allowed, key=lambda option: len(pairs(option) - met))
        met |= pairs(best)
        rows[model, algorithm, *best] = more
    return rows


TEXTS = [("ppo", "lora"), ("ppo", "full"), ("grpo_token", "full"), ("rloo", "lora")]


def test_each_two_choices_meet_somewhere() -> None:
    rows = covering()
    models = {row[0] for row in rows}
    # few-step models, which only algorithms train that can't learn in another precision
    replayed_alone = {
        (model, "bf16_rollout")
        for model in models
        if {row[1] for row in rows if row[0] == model} <= REPLAYING
    }
    columns = [models, PRECISIONS, FINETUNES, MEMORIES]
    chosen = [(model, *rest) for model, _, *rest in rows]
    for first, second in itertools.combinations(range(4), 2):
        met = {(row[first], row[second]) for row in chosen}
        possible = set(itertools.product(columns[first], columns[second]))
        assert met == possible - replayed_alone


@pytest.mark.slow
@pytest.mark.parametrize("row", covering(), ids="-".join)
def test_images_train_without_a_mismatch(
    pretended: Pretended, row: Row, small: Callable[[str], list[str]]
) -> None:
    model, algorithm, precision, finetune, memory = row
    found = pretended.measure(
        *(f"model={model}", f"algo={algorithm}", "iterations=1"),
        *(SMALL_TREE if algorithm == "branch_grpo" else ()),
        *(f"precision={precision}", f"model.finetune={finetune}", f"memory={memory}"),
        *((*OF_FULL_SIZE, *small(model)) if small(model) else ()),
        *(GRADED if algorithm == "diffusion_dpo" else ()),
        *(("prompts=edits",) if model == "flux_kontext" else ()),
        *covering()[row],
    )
    assert found["units"]["update"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "finetune"), TEXTS)
def test_texts_train_without_a_mismatch(
    pretended: Pretended, algorithm: str, finetune: str
) -> None:
    words = ["model=tiny_gpt2", f"algo={algorithm}", f"model.finetune={finetune}", "iterations=1"]
    assert pretended.measure(*words)["units"]["update"] == 2
