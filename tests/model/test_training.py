"""One iteration of every image algorithm on each family of models that it supports."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.config.overrides import compose
from rlfactory.config.plan import make_plan
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import Metrics, NoProgress
from rlfactory.train.trainer import Trainer

TINY = [
    "hardware=cpu",
    "recipe=none",
    "iterations=1",
    "prompts_per_iteration=2",
    "group_size=4",
    "schedule.steps=4",
    "micro_batch=12",
    "sample_batch=6",
    "model.size=32",
    "reward=compressibility",
    "precision=fp32",
]
"""An iteration of eight samples; rollouts and updates in batches of different sizes."""
STEPWISE = [
    ["algo=ddpo", "advantage.min_count=2"],
    ["algo=ddpo_sf"],
    ["algo=grpo", "epochs=2", "regularizer=kl_gaussian"],
    ["algo=flow_dppo", "epochs=2"],
    ["algo=branch_grpo", "group_size=4", "branches=4", "tree.splits=[0,1]", "algo.width=extremes"],
    ["algo=grpo", "algo.weighting=tempflow", "branches=4", "algo.over_steps=sum"],
]
FLOW = [
    ["algo=grpo", "dynamics=dance_sde", "window=all", "window.skip_last=0"],
    ["algo=grpo", "dynamics=cps", "window=random_subset", "latent_storage=bfloat16"],
    ["algo=grpo", "branch_at=step", "branches=2", "window.steps=[0,1]", "tail=0.5"],
    ["algo=grpo_guard", "window.steps=[0,1]"],
]
FORWARD = [
    ["algo=nft"],
    ["algo=nft", "dynamics=dpm_solver", "times=rollout", "times.count=3"],
    ["algo=awm", "regularizer=kl_awm"],
    ["algo=awm", "dynamics=sa_solver", "algo.behaviour=old", "algo.ratio=sum_first"],
    ["algo=vgrpo"],
    ["algo=dpo", "times.count=2"],
    ["algo=vgrpo", "regularizer=kl_behaviour", "algo.shortcut=false", "epochs=2"],
]

PLAIN = (["algo=ddpo_sf"], ["algo=nft"], ["algo=vgrpo"])
"""Without options of their own these are trained by tests/train/test_standards.py too."""


def cases(*kinds: list[list[str]], repeated: Sequence[list[str]]) -> list[Any]:
    """The words of all kinds, of which the repeated ones run where all are asked for."""
    every = [words for kind in kinds for words in kind]
    return [
        pytest.param(words, marks=pytest.mark.whole if words in repeated else ()) for words in every
    ]


def trained(folder: Path, *words: str) -> tuple[Trainer, Metrics, float]:
    """What an iteration logs, and how far it moved the weights."""
    composed = compose([*TINY, f"model.path={folder}", *words])
    config = make_plan(composed.values, composed.choices).config
    trainer = Trainer(build(config), training_budget(config), NoProgress())
    parameters = trainer.components.model.weights.parameters.values()
    before = [p.detach().clone() for p in parameters]
    logged: list[Metrics] = []
    trainer.run(lambda iteration, metrics, rollout: logged.append(metrics))
    moved = [(p.detach() - was).abs().max() for p, was in zip(parameters, before, strict=True)]
    return trainer, logged[0], float(torch.stack(moved).max())


def require_sound(trainer: Trainer, metrics: Metrics, moved: float) -> None:
    assert [name for name, value in metrics.items() if not math.isfinite(value)] == []
    assert metrics["grad/norm"] > 0
    assert metrics["advantage/zero_groups"] == 0
    assert trainer.learner.updates > 0
    assert 1e-6 < moved < 1e-2
    if trainer.components.algo.requires == "transitions":
        assert metrics["ratio/first_max_dev"] <= trainer.components.algo.ratio_tolerance


@pytest.mark.slow
@pytest.mark.parametrize("words", cases(STEPWISE, FLOW, FORWARD, repeated=PLAIN), ids=" ".join)
def test_on_a_flow(words: list[str], sd3_folder: Path) -> None:
    require_sound(*trained(sd3_folder, *words, "model.text_tokens=16"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    # a model of noise has steps and a process of its own; what follows of them is the same
    cases(STEPWISE, FORWARD, repeated=[*PLAIN, *STEPWISE[3:5], *FORWARD[1:3], FORWARD[-1]]),
    ids=" ".join,
)
def test_on_a_model_that_predicts_noise(words: list[str], sd_folder: Path) -> None:
    trainer, metrics, moved = trained(sd_folder, "model=sd14", *words)
    require_sound(trainer, metrics, moved)
    # the leaves of a tree share passes
    fewest = 5 if "algo=branch_grpo" in words else 8
    assert metrics["nfe/sample"] >= fewest, "guidance by a second pass"


FEW = ["prompts_per_iteration=1", "updates_per_iteration=1", "sample_batch=4"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "memory"), [("bf16", "low"), ("fp16", "roomy"), ("bf16_rollout", "low")]
)
def test_in_half_precision(precision: str, memory: str, sd3_folder: Path) -> None:
    words = ["model.finetune=lora", *FEW, "algo=nft", "times.count=1", f"memory={memory}"]
    words += ["schedule.steps=2", "model.text_tokens=16"]
    trainer, metrics, moved = trained(sd3_folder, *words, f"precision={precision}")
    require_sound(trainer, metrics, moved)
    assert {p.dtype for p in trainer.components.model.weights.parameters.values()} == {
        torch.float32
    }
    assert set(trainer.components.model.weights.state_dict()) >= {
        f"{name}/{key}"
        for name in ("policy", "ema", "old")
        for key in trainer.components.model.weights.parameters
    }


@pytest.mark.slow
def test_replays_in_half_precision_on_every_family_are_within_bounds(
    sd_folder: Path, sd3_folder: Path, flux_folders: dict[str, Path]
) -> None:
    for folder, words in (
        (sd_folder, ["model=sd14", "algo=ddpo", "advantage.min_count=2"]),
        (sd3_folder, ["model=sd35", "algo=grpo", "model.text_tokens=16"]),
        (flux_folders["dev"], ["model=flux", "algo=grpo", "model.text_tokens=16"]),
    ):
        # as drawn: four samples at once, and four replayed
        batches = [*FEW, "micro_batch=4"]
        trainer, metrics, moved = trained(folder, *words, *batches, "precision=bf16")
        require_sound(trainer, metrics, moved)
