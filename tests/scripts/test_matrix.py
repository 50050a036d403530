"""Each pair of an image model and an algorithm trains, or is refused as docs/options.md says."""

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.config.overrides import compose, plan_from_words
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
    *("sample_batch=4", "optimizer.lr=0.01", "model.size=32"),
]
"""An iteration of half a second."""


def test_every_algorithm_and_model_of_images_is_in_it() -> None:
    shipped = {path.stem for path in (ROOT / "conf" / "algo").glob("*.yaml")}
    assert shipped - set(matrix.algorithms()) == {
        *("ppo", "rloo", "grpo_token", "sft", "dapo", "dr_grpo", "gspo", "cispo"),
        *("reinforce_pp", "reinforce_pp_baseline", "dpo", "online_dpo", "raft"),
        *("opd", "opd_token"),  # of teachers
        *("dppo", "cppo", "drpo", "vespo", "gmpo", "maxrl"),
    }
    named = {name for names in matrix.FAMILIES.values() for name in names}
    models = {path.stem for path in (ROOT / "conf" / "model").glob("*.yaml")}
    assert models - named == {*("causal_lm", "gpt2", "qwen25_vl", "qwen3", "smollm2", "tiny_gpt2")}


def test_the_page_names_what_is_refused() -> None:
    lines = (ROOT / "docs" / "options.md").read_text(encoding="utf-8").splitlines()
    for family, refused in matrix.REFUSED.items():
        line = next(
            x for x in lines if x.startswith("- ") and f"`{matrix.FAMILIES[family][-1]}`" in x
        )
        assert all(f"`{name}`" in line for name in refused), family


SINGLE = ("ddpo_sf", "draft", "refl")
"""Algorithms of one update an iteration."""


def pairs() -> Iterator[Any]:
    """Each pair of a family and an algorithm.

    The code of an algorithm sees a model by its predictions alone, so each meets one that trains
    it, in turn, and one that is refused; tiny_sd3 trains all in tests/train/test_standards.py.
    """
    of_texts = sorted(matrix.TEXTS - {"dpo"})  # which is diffusion_dpo on images
    algorithms = sorted({*matrix.algorithms(), *of_texts})
    for i, (family, names) in enumerate(matrix.FAMILIES.items()):
        refused = matrix.TEXTS | matrix.REFUSED.get(family, frozenset())
        trained = [name for name in algorithms if name not in refused]
        kept = {of_texts[i % len(of_texts)], *matrix.REFUSED.get(family, ())}
        kept.add(trained[i % len(trained)])
        for algorithm in algorithms:
            marks = () if algorithm in kept else pytest.mark.whole
            yield pytest.param(names[0], algorithm, marks=marks, id=f"{names[0]}-{algorithm}")


def test_every_algorithm_and_family_is_met_without_the_whole() -> None:
    met = [case.values for case in pairs() if not case.marks]
    assert {model for model, _ in met} == {names[0] for names in matrix.FAMILIES.values()}
    assert {name for _, name in met} == {*matrix.algorithms(), *matrix.TEXTS} - {"dpo"}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "algorithm"), [*pairs()])
def test_a_pair_trains_or_is_refused(
    model: str, algorithm: str, small: Callable[[str], list[str]]
) -> None:
    family = next(name for name, models in matrix.FAMILIES.items() if model in models)
    data = matrix.data(model, algorithm)
    pair = (f"model={model}", f"algo={algorithm}", *data)
    if algorithm in matrix.TEXTS | matrix.REFUSED.get(family, frozenset()):
        for name in matrix.FAMILIES[family]:
            with pytest.raises(PlanError) as refused:
                plan_from_words(f"model={name}", *pair[1:])
            assert "algo" in {problem.key for problem in refused.value.problems}
        return
    once = ["updates_per_iteration=2"] if algorithm not in SINGLE else []
    tree = ["branches=2", "tree.splits=[0]"] if algorithm == "branch_grpo" else []
    pictures = ["prompts=edits"] if model in matrix.EDITING else []
    words = [*pair, *once, *SHORT, *tree, *pictures, *small(model), *data]
    few = ["times.count=2"] if "times" in compose(words).values else []
    config = plan_from_words(*words, *few).config  # of the same files, which are merged once
    parts = build(config)
    before = {k: p.detach().clone() for k, p in parts.model.weights.parameters.items()}
    logged: list[Metrics] = []
    trainer = Trainer(parts, training_budget(config), NoProgress())
    trainer.run(lambda iteration, metrics, rollout: logged.append(metrics))
    assert math.isfinite(logged[0]["loss/policy"])
    assert logged[0]["grad/norm"] > 0
    moved = [not torch.equal(p, before[k]) for k, p in parts.model.weights.parameters.items()]
    # of two networks, one may have none of the few steps
    assert sum(moved) > len(moved) / (4 if hasattr(parts.model, "trained") else 2)
