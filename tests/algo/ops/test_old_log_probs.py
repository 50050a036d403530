"""What is noted of samples before the policy moves away from them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.awm import AWM
from rlfactory.algo.ops.old_log_probs import must_recompute, token_log_ratio, with_old_log_probs
from rlfactory.algo.ops.token_outputs import token_outputs
from rlfactory.algo.ppo import PPO
from rlfactory.algo.times import UniformTimes
from rlfactory.algo.vgrpo import VGRPO
from rlfactory.batch import Batch, TrainingItems
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.dynamics.token import Token
from rlfactory.model.base import ImageModel
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.precision import Precision
from rlfactory.model.weight_sets import OLD
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

MakeModel = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


def make(kind: type[Any] = AWM, **options: Any) -> Any:
    return kind(GroupAdvantage(), UniformTimes(count=2), uniform_sigmas(6, 3.0), **options)


def remember(
    algo: Any, model: ImageModel, rollout: Rollout, shares: Sequence[list[int]], size: int = 100
) -> Tensor | None:
    def passes(samples: Rollout) -> tuple[TrainingItems | None, Iterator[tuple[Batch, bool]]]:
        if not len(samples):
            return None, iter(())
        items = algo.training_items(samples, model, seed=0, iteration=4)
        return items, ((batch, True) for batch in items.split(size))

    minibatches = [torch.tensor(share, dtype=torch.int64) for share in shares]
    return with_old_log_probs(algo, model, rollout, minibatches, passes, torch.clone).old_log_prob


@pytest.mark.parametrize("kind", [AWM, VGRPO])
def test_only_what_was_asked_for_is_noted(kind: type[Any], linear: MakeModel, roll: Roll) -> None:
    model, algo = linear(), make(kind)
    rollout = roll(model, [1.0, 2.0, 3.0, 4.0])
    old = require(remember(algo, model, rollout, [[3], [1]]), "it")
    assert old.isnan().tolist() == [[True] * 2, [False] * 2] * 2
    (batch,) = algo.training_items(rollout, model, seed=0, iteration=4).split(100)
    expected = algo.log_likelihoods(model, batch).view(4, 2)
    torch.testing.assert_close(old[[1, 3]], expected[[1, 3]].detach(), rtol=1e-5, atol=0)
    assert not old.requires_grad


def test_batches_change_nothing(linear: MakeModel, roll: Roll) -> None:
    model, algo = linear(), make()
    rollout = roll(model, [1.0, 2.0, 3.0, 4.0])
    whole, parts = (remember(algo, model, rollout, [[3, 0], [1]], size) for size in (100, 2))
    torch.testing.assert_close(whole, parts, equal_nan=True, rtol=1e-6, atol=0)


def test_it_is_the_behaviour_policy_that_is_asked(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = roll(model, [1.0, 2.0])
    before = remember(make(), model, rollout, [[0, 1]])
    model.weights.add(OLD)
    with torch.no_grad():
        model.weights.parameters["bias"] += 0.5
    of_old = remember(make(behaviour="old"), model, rollout, [[0, 1]])
    assert torch.equal(require(of_old, "it"), require(before, "it"))
    of_policy = remember(make(), model, rollout, [[0, 1]])
    assert not torch.isclose(require(of_policy, "it"), require(before, "it")).any()


@pytest.mark.parametrize("shares", [[], [[]], [[], []]])
def test_where_nothing_is_asked_nothing_is_noted(
    shares: list[list[int]], linear: MakeModel, roll: Roll
) -> None:
    model = linear()
    rollout = roll(model, [1.0, 2.0])
    model.evaluations.read_and_reset()
    assert remember(make(), model, rollout, shares) is None
    empty = rollout[torch.tensor([], dtype=torch.int64)]
    assert remember(make(), model, empty, [[]]) is None
    asked = model.evaluations.read_and_reset()
    assert (asked.forward, asked.trained) == (0, 0)


BF16 = Precision(rollout="bfloat16", learning="bfloat16")
TOKEN = Token(length=10)
ALGO = PPO(TOKEN)


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    return CausalLM(torch.device("cpu"), 0, BF16, path=str(gpt2_folder))


@pytest.fixture
def rollout(model: CausalLM) -> Rollout:
    prompts = ["This", "A film that", "I", "You"]
    uniform = torch.rand(4, 10, generator=torch.Generator().manual_seed(3))
    tokens = model.rollout(*model.encode(prompts), TOKEN, uniform)
    zeros = torch.zeros(4, 10)
    number = torch.arange(4)
    return Rollout(prompts, [{}] * 4, number, number, tokens=tokens, advantage=zeros, returns=zeros)


@pytest.mark.parametrize(
    ("chosen", "precision", "expected"),
    [
        ("auto", Precision(), False),
        ("auto", BF16, True),
        ("auto", Precision(rollout="bfloat16"), True),
        ("sampled", BF16, False),
        ("recomputed", Precision(), True),
    ],
)
def test_when_tokens_are_recomputed(
    chosen: Any, precision: Precision, expected: bool, rollout: Rollout
) -> None:
    algo = PPO(TOKEN, old_log_probs=chosen)
    assert must_recompute(algo, precision, rollout, [], 1) is expected


def test_first_ratios_of_tokens_are_one(model: CausalLM, rollout: Rollout) -> None:
    def passes(samples: Rollout) -> Any:
        items = ALGO.training_items(samples, model, seed=0, iteration=0)
        return items, ((batch, True) for batch in items.split(3))

    rows = torch.tensor([2, 0, 3, 1])
    found = with_old_log_probs(ALGO, model, rollout, [rows], passes, torch.clone)
    assert found.old_log_prob is not None
    off = []
    none = with_old_log_probs(ALGO, model, rollout, [], passes, torch.clone)
    for samples in (found, rollout, none):
        deviations = []
        for batch, _ in passes(samples[rows])[1]:
            outputs, _ = token_outputs(model, TOKEN, batch.tokens)
            deviations.append(token_log_ratio(outputs.log_prob, batch)[0].abs().max())
        off.append(float(torch.stack(deviations).max()))
    recomputed, sampled, on_policy = off
    assert recomputed == 0
    assert sampled > 1e-4, "the pass on a cache rounds otherwise"
    assert on_policy == 0


def test_how_far_sampling_was_off_is_measured(model: CausalLM, rollout: Rollout) -> None:
    batch = ALGO.training_items(rollout, model, seed=0, iteration=0)
    batch = replace(batch, old_log_prob=batch.tokens.log_prob + 0.1)
    log_prob = batch.tokens.real(batch.tokens.log_prob)
    ratio, measured = token_log_ratio(log_prob, batch)
    torch.testing.assert_close(ratio, torch.full_like(ratio, -0.1))
    off = measured["ratio/sampled_max_dev"]
    torch.testing.assert_close(off, torch.full_like(off, torch.tensor(0.1).exp().item() - 1))
