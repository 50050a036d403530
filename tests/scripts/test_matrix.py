"""The matrix of docs/options.md is what the configurations say, and what it allows trains."""

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import Metrics, NoProgress
from rlfactory.train.trainer import Trainer

ROOT = Path(__file__).parents[2]
DOCS = str(ROOT / "scripts" / "docs")
sys.path.insert(0, DOCS)
matrix = importlib.import_module("matrix")
sys.path.remove(DOCS)

SHORT = [
    *("hardware=cpu", "reward=compressibility", "prompts=shapes", "iterations=1"),
    *("prompts_per_iteration=2", "group_size=2", "schedule.steps=6", "micro_batch=8"),
    *("sample_batch=4", "optimizer.lr=0.01"),
]
"""An iteration of a second."""


@pytest.mark.slow
def test_the_page_is_what_the_script_prints() -> None:
    assert matrix.PART.stale() == matrix.PART.fresh(), (
        "python scripts/docs/matrix.py writes it anew"
    )
    assert matrix.on_page() == matrix.allowed()


def test_every_algorithm_and_model_of_images_is_in_it() -> None:
    shipped = {path.stem for path in (ROOT / "conf" / "algo").glob("*.yaml")}
    assert shipped - set(matrix.algorithms()) == {
        *("ppo", "rloo", "grpo_token", "sft", "dapo", "dr_grpo", "gspo", "cispo"),
        *("reinforce_pp", "reinforce_pp_baseline", "dpo"),
    }
    named = {name for names in matrix.FAMILIES.values() for name in names}
    models = {path.stem for path in (ROOT / "conf" / "model").glob("*.yaml")}
    assert models - named == {"causal_lm", "gpt2", "qwen3", "tiny_gpt2"}


def test_what_is_refused_says_why() -> None:
    words, reason = matrix.verdict("sd14", "grpo_guard")
    assert words == ()
    assert reason is not None
    assert "flow_sde alone" in reason
    with pytest.raises(PlanError):
        plan_from_words("model=sd14", "algo=grpo_guard")
    notes: dict[str, int] = {}
    assert matrix._cell("Stable Diffusion 1, 2", "grpo_guard", notes) == "– (1)"
    assert notes == {f"refused: {reason}": 1}


def test_a_pair_needs_no_further_words() -> None:
    pairs = [
        (model, algo)
        for models in matrix.FAMILIES.values()
        for model in models
        for algo in matrix.algorithms()
    ]
    assert {pair: words for pair in pairs if (words := matrix.verdict(*pair)[0])} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", sorted(path.stem for path in (ROOT / "conf" / "algo").glob("*.yaml"))
)
@pytest.mark.parametrize("model", [names[0] for names in matrix.FAMILIES.values()])
def test_a_pair_trains_or_is_refused(
    model: str, algorithm: str, small: Callable[[str], list[str]]
) -> None:
    more, reason = matrix.verdict(model, algorithm)
    data = matrix.data(model, algorithm)
    if reason is not None:
        assert (model, algorithm) not in {pair[:2] for pair in matrix.allowed()}
        with pytest.raises(PlanError):
            plan_from_words(f"model={model}", f"algo={algorithm}", *data)
        return
    pair = (f"model={model}", f"algo={algorithm}", *data)
    beside = [word for word in more if not word.startswith("micro_batch")]  # SHORT has its own
    once = [] if algorithm == "ddpo_sf" else ["updates_per_iteration=2"]
    tree = ["branches=2", "tree.splits=[0]"] if algorithm == "branch_grpo" else []
    pictures = ["prompts=edits"] if model == "flux_kontext" else []
    few = ["times.count=2"] if "times" in plan_from_words(*pair, *beside).config else []
    words = [*pair, *beside, *once, *few, *SHORT, *tree, *pictures, *small(model), *data]
    config = plan_from_words(*words).config
    parts = build(config)
    before = {k: p.detach().clone() for k, p in parts.model.weights.parameters.items()}
    logged: list[Metrics] = []
    trainer = Trainer(parts, training_budget(config), NoProgress())
    trainer.run(lambda iteration, metrics, rollout: logged.append(metrics))
    assert math.isfinite(logged[0]["loss/policy"])
    assert logged[0]["grad/norm"] > 0
    moved = [not torch.equal(p, before[k]) for k, p in parts.model.weights.parameters.items()]
    assert sum(moved) > len(moved) / 2
