"""In half precision tokens' ratios compare with likelihoods of learning's own passes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.algo.ops.old_log_probs import must_recompute, with_old_log_probs
from rlfactory.algo.ops.old_token_log_probs import token_log_ratio
from rlfactory.algo.ops.token_outputs import token_outputs
from rlfactory.algo.ppo import PPO
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.precision import Precision
from rlfactory.rollout import Rollout

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
def test_when(chosen: Any, precision: Precision, expected: bool, rollout: Rollout) -> None:
    algo = PPO(TOKEN, old_log_probs=chosen)
    assert must_recompute(algo, precision, rollout, [], 1) is expected


def test_first_ratios_are_one(model: CausalLM, rollout: Rollout) -> None:
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
