"""PPO with the score on the state after the end, against TRL's own arithmetic on full arrays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GPT2Config, GPT2ForSequenceClassification

from rlfactory.algo.ppo import PPO
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.rollout import Rollout, Tokens
from rlfactory.utils.pytree import require

ROWS, LENGTH, PROMPT = 8, 6, 5
SCORES = torch.tensor([1.0, -0.5, 0.25, 2.0, 0.0, 1.5, -1.0, 0.5])
KL_COEF, VF_COEF, CLIP = 0.05, 0.1, 0.2
TOKEN = Token(length=LENGTH, stop=[chr(65 + i) for i in range(26)])
OPTIONS: dict[str, Any] = {
    "score_placement": "after_end",
    "missing_end": "penalty",
    "whiten_unbiased": True,
    "value_weight": VF_COEF,
    "clip_range": CLIP,
    "value_clip": CLIP,
}


@pytest.fixture
def model(gpt2_folder: Path, tmp_path: Path) -> CausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        config = GPT2Config(
            vocab_size=257, n_positions=64, n_embd=16, n_layer=1, n_head=2, num_labels=1
        )
        config.initializer_range = 0.3
        GPT2ForSequenceClassification(config).save_pretrained(tmp_path / "rm")
    return CausalLM(torch.device("cpu"), path=str(gpt2_folder), value_path=str(tmp_path / "rm"))


@pytest.fixture
def rollout(model: CausalLM) -> Rollout:
    """Responses that end early, with their last possible token, and not at all."""
    generator = torch.Generator().manual_seed(1)
    ids, mask = model.encode(["Film"] * ROWS)
    uniform = torch.rand(ROWS, LENGTH, generator=generator)
    tokens = model.rollout(ids, mask, TOKEN, uniform)
    lengths = torch.tensor([1, 2, 3, 4, LENGTH, LENGTH, LENGTH, 5])
    ended = torch.tensor([True, True, True, True, True, False, False, True])
    mask = torch.arange(LENGTH) < lengths[:, None]
    # what lies beyond the state after the end is arbitrary, and so may be anything
    noise = 0.3 * torch.randn(3, ROWS, LENGTH, generator=generator)
    tokens = replace(tokens, mask=mask, ended=ended, lengths=None)
    old = torch.cat([model.forward(tokens)[0].log_softmax(-1)])
    log_prob = tokens.pad(old.gather(-1, tokens.real(tokens.response)[:, None])[:, 0]) + noise[0]
    tokens = replace(tokens, log_prob=log_prob.detach(), value=noise[1])
    penalty = KL_COEF * noise[2] * mask
    return Rollout(
        prompts=["Film"] * ROWS,
        metadata=[{}] * ROWS,
        groups=torch.arange(ROWS),
        index=torch.arange(ROWS),
        tokens=tokens,
        texts=[""] * ROWS,
        rewards={"main": SCORES},
        penalty=penalty,
    )


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum()


def masked_whiten(values: Tensor, mask: Tensor, shift_mean: bool = True) -> Tensor:
    mean = masked_mean(values, mask)
    var = masked_mean((values - mean) ** 2, mask) * mask.sum() / (mask.sum() - 1)
    whitened = (values - mean) * torch.rsqrt(var + 1e-8)
    return whitened if shift_mean else whitened + mean


def trl_masks(tokens: Tokens) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`sequence_lengths`, `sequence_lengths_p1`, `padding_mask` and `padding_mask_p1` of TRL."""
    lengths = tokens.mask.sum(1) - 1
    index = torch.arange(LENGTH).repeat(ROWS, 1)
    # without a padding token TRL's sequence length is the last index
    after = lengths + 1
    return lengths, after, index > lengths[:, None], index > after[:, None]


def trl_advantages(rollout: Rollout, whiten_rewards: bool) -> tuple[Tensor, Tensor]:
    """Steps 3 to 6 of ppo_trainer.py in TRL 0.12 to 1.12, on the arrays of a rollout."""
    tokens = require(rollout.tokens, "tokens")
    lengths, lengths_p1, padding_mask, padding_mask_p1 = trl_masks(tokens)
    scores = SCORES.clone()
    scores[~tokens.ended] -= 1.0
    values = torch.masked_fill(tokens.value, padding_mask_p1, 0)
    # log-probabilities are INVALID_LOGPROB in both where padded, so their difference is 0
    kl = torch.masked_fill(require(rollout.penalty, "a penalty") / KL_COEF, padding_mask, 0)
    rewards = -KL_COEF * kl
    # an unfinished response has no padding token: its p1 is beyond the array
    p1 = torch.where(tokens.ended, lengths_p1, torch.full_like(lengths_p1, LENGTH))
    actual_end = torch.where(p1 < LENGTH, p1, lengths)
    rewards[torch.arange(ROWS), actual_end] += scores
    if whiten_rewards:
        rewards = masked_whiten(rewards, ~padding_mask_p1, shift_mean=False)
        rewards = torch.masked_fill(rewards, padding_mask_p1, 0)
    lastgaelam, reversed_ = torch.zeros(ROWS), []
    for t in reversed(range(LENGTH)):
        nextvalues = values[:, t + 1] if t < LENGTH - 1 else 0.0
        delta = rewards[:, t] + nextvalues - values[:, t]
        lastgaelam = delta + 0.95 * lastgaelam
        reversed_.append(lastgaelam)
    advantages = torch.stack(reversed_[::-1], dim=1)
    returns = advantages + values
    advantages = masked_whiten(advantages, ~padding_mask)
    return torch.masked_fill(advantages, padding_mask, 0), returns


@pytest.mark.parametrize("whiten_rewards", [False, True])
def test_advantages_and_returns_are_trls(rollout: Rollout, whiten_rewards: bool) -> None:
    algo = PPO(TOKEN, whiten_token_rewards=whiten_rewards, **OPTIONS)
    done = algo.compute_advantages(rollout, "main")
    advantages, returns = trl_advantages(rollout, whiten_rewards)
    torch.testing.assert_close(done.advantage, advantages, atol=1e-6, rtol=1e-5)
    states = ~trl_masks(require(rollout.tokens, "tokens"))[3]
    found = require(done.returns, "returns")
    torch.testing.assert_close(found[states], returns[states], atol=1e-6, rtol=1e-5)


def items(model: CausalLM, rollout: Rollout, **options: Any) -> tuple[PPO, TokenBatch]:
    algo = PPO(TOKEN, **{**OPTIONS, **options})
    done = algo.compute_advantages(rollout, "main")
    return algo, algo.training_items(done, model, seed=0, iteration=0)


def test_the_loss_is_trls(model: CausalLM, rollout: Rollout) -> None:
    """By transformers' networks on full arrays; the value loss is divided by tokens, not states."""
    algo, batch = items(model, rollout)
    found = algo.loss(model, batch)
    tokens = require(rollout.tokens, "tokens")
    advantages, returns = trl_advantages(rollout, whiten_rewards=False)
    _, _, padding_mask, padding_mask_p1 = trl_masks(tokens)
    whole = torch.cat([tokens.prompt, tokens.response], dim=1)
    start = tokens.prompt.shape[1] - 1
    logits = model.network(whole).logits[:, start:-1]
    new = logits.log_softmax(-1).gather(-1, tokens.response[..., None])[..., 0]
    network: Any = model.critic.network
    hidden = network.transformer(whole).last_hidden_state
    vpred = network.score(hidden)[:, start:-1, 0].masked_fill(padding_mask_p1, 0)
    ratio = torch.exp((new - tokens.log_prob).masked_fill(padding_mask, 0))
    pg = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - CLIP, 1 + CLIP))
    clipped = torch.clamp(vpred, tokens.value - CLIP, tokens.value + CLIP)
    vf = 0.5 * torch.max((vpred - returns) ** 2, (clipped - returns) ** 2)
    states = masked_mean(vf, ~padding_mask_p1) * (~padding_mask_p1).sum() / tokens.mask.sum()
    expected = masked_mean(pg, ~padding_mask) + VF_COEF * states
    torch.testing.assert_close(found.value, expected, atol=1e-5, rtol=1e-5)


def test_micro_batches_add_up(model: CausalLM, rollout: Rollout) -> None:
    algo, batch = items(model, rollout)
    whole = algo.loss(model, batch).value
    parts = [algo.loss(model, part).value * part.weight / batch.weight for part in batch.split(3)]
    assert sum(part.item() for part in parts) == pytest.approx(whole.item(), abs=1e-6)


def gradient(model: CausalLM, rollout: Rollout) -> tuple[Tensor, list[Tensor]]:
    algo, batch = items(model, rollout)
    loss = algo.loss(model, batch).value
    parameters = list(model.weights.parameters.values())
    return loss, list(torch.autograd.grad(loss, parameters))


def test_padding_has_no_effect_on_loss_and_gradient(model: CausalLM, rollout: Rollout) -> None:
    """Other tokens, likelihoods and values beyond the state after the end change nothing."""
    tokens = require(rollout.tokens, "tokens")
    is_padding, beyond = ~tokens.mask, ~tokens.with_end_state().mask
    other = replace(
        tokens,
        response=torch.where(is_padding, 65, tokens.response),
        log_prob=torch.where(is_padding, torch.nan, tokens.log_prob),
        value=torch.where(beyond, torch.nan, tokens.value),
    )
    for a, b in zip(
        gradient(model, rollout)[1], gradient(model, replace(rollout, tokens=other))[1], strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-5)


def test_the_state_after_the_end_is_trained_to_predict_the_score(
    model: CausalLM, rollout: Rollout
) -> None:
    tokens = require(rollout.tokens, "tokens")
    returns = require(PPO(TOKEN, **OPTIONS).compute_advantages(rollout, "main").returns, "returns")
    for row in (0, 1, 2, 3, 7):
        assert returns[row, int(tokens.mask[row].sum())].item() == pytest.approx(SCORES[row].item())


def test_responses_that_fill_the_array_have_no_state_after_the_end(rollout: Rollout) -> None:
    tokens = require(rollout.tokens, "tokens")
    added = tokens.with_end_state().mask.sum(1) - tokens.mask.sum(1)
    assert added.tolist() == [1, 1, 1, 1, 0, 0, 0, 1]


def test_a_rollout_holds_the_value_after_the_end(model: CausalLM) -> None:
    ids, mask = model.encode(["A film", "I"])
    uniform = torch.rand(2, LENGTH, generator=torch.Generator().manual_seed(6))
    stop = Token(length=LENGTH, stop=[chr(i) for i in range(33, 127)])
    tokens = model.rollout(ids, mask, stop, uniform)
    states = tokens.with_end_state()
    assert int(states.mask.sum()) > int(tokens.mask.sum()), "one must end early"
    _, values, _ = model.measure(tokens, lambda x: (x,), value_tokens=states)
    torch.testing.assert_close(states.real(tokens.value), values, atol=1e-5, rtol=1e-4)


def test_a_value_head_has_none(gpt2_folder: Path, rollout: Rollout) -> None:
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder))
    algo, batch = items(model, rollout)
    with pytest.raises(Exception, match=r"model\.value_path"):
        algo.loss(model, batch)
