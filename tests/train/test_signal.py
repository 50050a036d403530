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
Constant = Callable[..., Trainer]

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
    *("model=tiny_sd3", "model.size=32", "prompts_per_iteration=2", "group_size=3"),
    "micro_batch=4",
    *("sample_batch=6", "schedule.steps=4", "evaluation.prompts=1"),
]
ADAPTERS = "model.finetune=lora"


@pytest.fixture
def constant(tmp_path: Path, planned: Planned) -> Constant:
    """A run by these words, whose reward is the same number for all samples."""

    def begin(*words: str, value: float = 0.1) -> Trainer:
        (tmp_path / "own.py").write_text(FUNCTIONS.replace("VALUE", repr(value)))
        is_text = TEXT[0] in words
        reward = "function" if is_text else "image_function"
        function = f"{tmp_path}/own.py:{'texts' if is_text else 'images'}"
        config = planned(*words, f"reward={reward}", f"reward.function={function}")
        return Trainer(build(config), training_budget(config), NoProgress())

    return begin


def weights(trainer: Trainer) -> dict[str, Tensor]:
    """A copy of all that is trained, the critic's last layers left out."""
    state = trainer.components.model.weights.state_dict()
    return {name: tensor.clone() for name, tensor in state.items() if "critic." not in name}


def critic(trainer: Trainer) -> list[Tensor]:
    named = trainer.components.model.weights.parameters.items()
    return [parameter.detach().clone() for name, parameter in named if "critic." in name]


def learned(trainer: Trainer, iterations: int = 3, first: int = 0) -> list[Metrics]:
    found = []
    for iteration in range(first, first + iterations):
        rollout, _ = trainer.score(trainer.sample(iteration))
        found.append(trainer.learner.learn(rollout, iteration))
    return found


def assert_still(trainer: Trainer) -> None:
    """Two iterations move no weight, and count each of their updates as left out."""
    before = weights(trainer)
    metrics = learned(trainer, 2)
    after = weights(trainer)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    budget = trainer.learner.budget
    updates = budget.epochs * budget.updates_per_iteration
    assert [found["update/skipped_no_signal"] for found in metrics] == [updates] * 2


KL = "regularizer=kl_token"
TOKENS = [
    ["algo=ppo"],
    ["algo=ppo", ADAPTERS],
    ["algo=ppo", KL, "regularizer.placement=reward", "regularizer.estimator=k1"],
    ["algo=ppo", KL, "regularizer.estimator=k3", "micro_batch=5"],
    ["algo=grpo_token"],
    ["algo=grpo_token", "optimizer=muon", "optimizer.weight_decay=0.1"],
    ["algo=rloo"],
    ["algo=dapo"],
    ["algo=dr_grpo"],
    ["algo=gspo"],
    ["algo=cispo"],
    *([f"algo={name}"] for name in ("dppo", "cppo", "drpo", "vespo", "gmpo", "maxrl")),
    ["algo=reinforce_pp"],
    ["algo=reinforce_pp_baseline"],
]
MANNERS = ([], [ADAPTERS], ["micro_batch=5"], ["regularizer.weighting=ratio"])
MORE_TOKENS = [
    pytest.param(
        [f"algo={algo}", KL, f"regularizer.estimator={estimator}", *more],
        marks=() if (i + j + k) % 4 == 0 else pytest.mark.whole,  # each estimator and manner is met
    )
    for i, algo in enumerate(("ppo", "grpo_token"))
    for j, estimator in enumerate(("exact", "k2", "k3", "abs"))
    for k, more in enumerate(MANNERS)
] + [
    ["algo=grpo_token", KL, "regularizer.placement=reward", "regularizer.estimator=exact"],
    ["algo=ppo", "regularizer=kl_token_adaptive"],
    ["algo=ppo", "precision=bf16"],
]
IMAGES = [
    ["algo=nft"],
    ["algo=nft", "algo.beta=0.3", "regularizer=kl_v"],
    ["algo=awm"],
    ["algo=vgrpo", ADAPTERS, "model.lora_init=orthogonal", "regularizer=kl_v"],
    ["algo=grpo", "regularizer=kl_gaussian"],
    ["algo=diffusion_dpo"],
    ["algo=dgpo", "regularizer=kl_v"],
    ["algo=crd"],
]
SINGLE_UPDATE = {"ddpo_sf": ["updates_per_iteration=1"]}  # a second is not on-policy: refused
OF_STEPS = ("kl_gaussian", "kl_x", "kl_flow_grpo")
ALGORITHMS = ("nft", "awm", "vgrpo", "grpo", "ddpo", "ddpo_sf", "flow_dppo", "grpo_guard")
PENALTIES = ("none", "kl_v", "kl_elbo", "kl_behaviour", "kl_ema", "kl_awm", *OF_STEPS)
MORE_IMAGES = [
    pytest.param(
        [f"algo={algo}", f"regularizer={regularizer}", *SINGLE_UPDATE.get(algo, []), *adapters],
        marks=() if (i + j) % 5 == 0 else pytest.mark.whole,  # each algorithm and penalty is met
    )
    for i, algo in enumerate(ALGORITHMS)
    for j, regularizer in enumerate(PENALTIES)
    for adapters in [[ADAPTERS] if (i + j) % 2 else []]  # all weights and adapters in turn
    if regularizer not in OF_STEPS or algo not in ("nft", "awm", "vgrpo")
]


@pytest.mark.slow
@pytest.mark.parametrize("words", TOKENS, ids=" ".join)
def test_equal_rewards_of_texts_move_no_weight(words: list[str], constant: Constant) -> None:
    assert_still(constant(*TEXT, *words))


@pytest.mark.slow
@pytest.mark.parametrize("words", MORE_TOKENS, ids=" ".join)
def test_equal_rewards_of_texts_move_no_weight_whatever_the_penalty(
    words: list[str], constant: Constant
) -> None:
    assert_still(constant(*TEXT, *words))


@pytest.mark.slow
@pytest.mark.parametrize("words", IMAGES, ids=" ".join)
def test_equal_rewards_of_images_move_no_weight(words: list[str], constant: Constant) -> None:
    assert_still(constant(*IMAGE, *words))


@pytest.mark.slow
@pytest.mark.parametrize("words", MORE_IMAGES, ids=" ".join)
def test_equal_rewards_of_images_move_no_weight_whatever_the_penalty(
    words: list[str], constant: Constant
) -> None:
    assert_still(constant(*IMAGE, *words))


@pytest.mark.slow
def test_a_critic_learns_equal_rewards(constant: Constant) -> None:
    trainer = constant(*TEXT, "algo=ppo", value=1.0)
    losses = [found["loss/value"] for found in learned(trainer)]
    assert losses[2] < losses[1] < losses[0]
    assert any(bool(values.any()) for values in critic(trainer))


@pytest.mark.parametrize("words", [["algo.gamma=0.9"], ["algo.entropy_weight=0.1"]], ids=" ".join)
def test_what_tells_equal_rewards_apart_is_a_signal(words: list[str], constant: Constant) -> None:
    trainer = constant(*TEXT, "algo=ppo", *words)
    before = weights(trainer)
    (found,) = learned(trainer, 1)
    assert found["update/skipped_no_signal"] == 0
    assert any(not torch.equal(tensor, before[name]) for name, tensor in weights(trainer).items())


def varied(trainer: Trainer) -> None:
    """Let rewards differ in one iteration, so that the policy leaves its reference."""
    rollout, _ = trainer.score(trainer.sample(0))
    sign = 1.0 - 2.0 * (torch.arange(len(rollout)) % 2)
    assert rollout.advantage is not None
    rollout.advantage.copy_(sign[:, None].expand_as(rollout.advantage))
    trainer.learner.learn(rollout, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("regularizer", "skipped"), [("none", 2), ("kl_token", 0)])
def test_momentum_carries_no_policy_on_and_a_penalty_away_from_its_reference_is_a_signal(
    regularizer: str, skipped: int, constant: Constant
) -> None:
    trainer = constant(*TEXT, "algo=grpo_token", f"regularizer={regularizer}")
    start = weights(trainer)
    varied(trainer)
    before, updates = weights(trainer), trainer.learner.updates
    assert any(not torch.equal(start[name], before[name]) for name in start)
    (found,) = learned(trainer, 1, first=1)
    assert found["update/skipped_no_signal"] == skipped
    assert trainer.learner.updates == updates + 2 - skipped
    after = weights(trainer)
    is_still = all(torch.equal(before[name], after[name]) for name in before)
    assert is_still == (regularizer == "none")
