"""Each algorithm trains each family on the pretended device: no tensor meets one of another."""

import importlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pretended.client import Pretended
from tiny_pipelines import EDITING

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


ALL_ALGORITHMS = ("tiny_sd", "tiny_sd3")
"""A model of noise and one of velocity: each with every algorithm. The code of an algorithm sees a
model by its predictions alone, and tests/scripts/test_matrix.py trains each pair on the CPU."""
ROWS_OF_OTHERS = {"sdxl": 2, "flux_schnell": 2, "z_image_turbo": 2}
"""How many algorithms each model meets whose code is that of another one here; 4 for the rest."""


@cache
def covering() -> dict[Row, tuple[str, ...]]:
    """For pairs of model and algorithm a precision, finetune and memory, so that each two values of
    different choices occur together somewhere, except model and algorithm, and what
    `ROWS_OF_OTHERS` leaves to the model of the same code.

    Returns:
        Of each row the words that the pair needs besides.
    """
    options = list(itertools.product(PRECISIONS, FINETUNES, MEMORIES))
    met: set[frozenset[tuple[int, str]]] = set()
    used: Counter[str] = Counter()
    rows = {}
    pairs_of: dict[str, dict[str, tuple[str, ...]]] = {}
    for model, algorithm, more in matrix.allowed():
        pairs_of.setdefault(model, {})[algorithm] = more

    def new(model: str, algorithm: str, option: tuple[str, ...]) -> set[Any]:
        values = [*enumerate((model, *option)), (4, algorithm)]
        return {frozenset(two) for two in itertools.combinations(values, 2)} - met

    for model, offered in pairs_of.items():
        left = dict(offered)
        wanted = len(left) if model in ALL_ALGORITHMS else ROWS_OF_OTHERS.get(model, 4)
        for _ in range(min(wanted, len(left))):
            candidates = [
                (algorithm, option)
                for algorithm in sorted(left, key=lambda name: (used[name], name))
                for option in options
                if not (option[0] == "bf16_rollout" and algorithm in REPLAYING)
            ]

            def worth(c: tuple[str, tuple[str, ...]], model: str = model) -> tuple[int, int, int]:
                """First what the model has not met, then any pair, then what was used least."""
                found = new(model, *c)
                return sum((0, model) in two for two in found), len(found), -used[c[0]]

            algorithm, best = max(candidates, key=worth)
            met |= new(model, algorithm, best)
            used[algorithm] += 1
            rows[model, algorithm, *best] = left.pop(algorithm)
    return rows


TEXTS = [("ppo", "lora"), ("ppo", "full"), ("grpo_token", "full"), ("rloo", "lora")]


def test_each_two_choices_meet_somewhere() -> None:
    rows = covering()
    models = {model for model, *_ in matrix.allowed()}
    algorithms = {algorithm for _, algorithm, _ in matrix.allowed()}
    assert {row[0] for row in rows} == models
    assert {row[1] for row in rows} == algorithms
    for model in ALL_ALGORITHMS:
        ours = {row[1] for row in rows if row[0] == model}
        assert ours == {algorithm for name, algorithm, _ in matrix.allowed() if name == model}
    # few-step models, which only algorithms train that can't learn in another precision
    replayed_alone = {
        (model, "bf16_rollout")
        for model in models
        if {name for m, name, _ in matrix.allowed() if m == model} <= REPLAYING
    }
    columns = [models - {*ROWS_OF_OTHERS}, PRECISIONS, FINETUNES, MEMORIES]
    chosen = [(model, *rest) for model, _, *rest in rows if model not in ROWS_OF_OTHERS]
    for first, second in itertools.combinations(range(4), 2):
        met = {(row[first], row[second]) for row in chosen}
        possible = set(itertools.product(columns[first], columns[second]))
        assert met == possible - replayed_alone
    for model in ROWS_OF_OTHERS:
        met = {value for row in rows if row[0] == model for value in row[3:]}
        assert met == {*FINETUNES, *MEMORIES}


def rows() -> Iterator[Any]:
    """All are run by `--whole`; without it the first of each algorithm, and of each model but those
    whose code is another's.
    """
    every = [*covering()]
    kept = {row[0]: row for row in reversed(every) if row[0] not in ROWS_OF_OTHERS}
    left = {row[1] for row in every} - {row[1] for row in kept.values()}
    kept |= {row[1]: row for row in reversed(every) if row[1] in left}
    for row in every:
        marks = () if row in kept.values() else pytest.mark.whole
        yield pytest.param(row, marks=marks, id="-".join(row))


@pytest.mark.slow
@pytest.mark.parametrize("row", [*rows()])
def test_images_train_without_a_mismatch(
    pretended: Pretended, row: Row, small: Callable[[str], list[str]]
) -> None:
    model, algorithm, precision, finetune, memory = row
    if algorithm == "diffusion_dpo_offline" and precision == "fp16":
        # while its prompts are encoded the network leaves the device; unlike a real one's, this
        # one's parameters come back as others, and float16's scaler wants to see their gradients
        precision = "bf16"
    found = pretended.measure(
        *(f"model={model}", f"algo={algorithm}", "iterations=1"),
        *(SMALL_TREE if algorithm == "branch_grpo" else ()),
        *(f"precision={precision}", f"model.finetune={finetune}", f"memory={memory}"),
        *((*OF_FULL_SIZE, *small(model)) if small(model) else ()),
        *(GRADED if algorithm == "diffusion_dpo" else ()),
        *(("prompts=edits",) if model in EDITING else ()),
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
