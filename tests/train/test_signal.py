"""Where nothing tells better from worse, no weight moves, to the last bit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.train.build import build, training_budget
from rlfactory.train.components import Metrics, NoProgress
from rlfactory.train.trainer import Trainer

Planned = Callable[..., Mapping[str, Any]]

FUNCTIONS = """
def texts(prompts, completions, **columns):
    return [VALUE] * len(completions)

def images(images, prompts, metadata):
    return [VALUE] * len(images)
"""
TEXT = [
    *("model=tiny_gpt2", "dynamics.length=6", "prompts_per_iteration=3", "group_size=4"),
    *("micro_batch=8", "sample_batch=12", "evaluation.prompts=1"),
]
IMAGE = [
    *("model=tiny_sd3", "prompts_per_iteration=2", "group_size=3", "micro_batch=4"),
    *("sample_batch=6", "schedule.steps=4", "evaluation.prompts=1"),
]


@pytest.fixture
def constant(tmp_path: Path, planned: Planned) -> Callable[..., Trainer]:
    """A run by these words, whose reward is the same number for all samples."""

    def begin(*words: str, value: float = 0.0) -> Trainer:
        (tmp_path / "own.py").write_text(FUNCTIONS.replace("VALUE", repr(value)))
        is_text = TEXT[0] in words
        reward = "function" if is_text else "image_function"
        function = f"{tmp_path}/own.py:{'texts' if is_text else 'images'}"
        config = planned(*words, f"reward={reward}", f"reward.function={function}")
        return Trainer(build(config), training_budget(config), NoProgress())

    return begin


def weights(trainer: Trainer) -> dict[str, Tensor]:
    state = trainer.components.model.weights.state_dict()
    return {name: tensor.clone() for name, tensor in state.items()}


def learned(trainer: Trainer, iterations: int = 3) -> list[Metrics]:
    found = []
    for iteration in range(iterations):
        rollout, _ = trainer.score(trainer.sample(iteration))
        found.append(trainer.learner.learn(rollout, iteration))
    return found


def moved(trainer: Trainer, iterations: int = 3) -> tuple[list[str], list[Metrics]]:
    before = weights(trainer)
    metrics = learned(trainer, iterations)
    after = weights(trainer)
    names = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    return names, metrics


KL_TOKEN = [
    ["regularizer=none"],
    *(
        ["regularizer=kl_token", f"regularizer.estimator={estimator}"]
        for estimator in ("exact", "k2", "k3", "abs")
    ),
    ["regularizer=kl_token", "regularizer.estimator=k3", "regularizer.weighting=ratio"],
    ["regularizer=kl_token", "regularizer.placement=reward", "regularizer.estimator=k1"],
    ["regularizer=kl_token", "regularizer.placement=reward", "regularizer.estimator=exact"],
    ["regularizer=kl_token_adaptive"],
]
TEXT_ALGOS = ["ppo", "grpo_token", "rloo", "dapo", "dr_grpo", "gspo", "cispo", "reinforce_pp", "reinforce_pp_baseline"]
