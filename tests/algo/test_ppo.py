"""PPO on tokens: what scores become, and what the loss is made of."""

from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import group_advantages
from rlfactory.algo.ops.token_outputs import value_loss
from rlfactory.algo.ppo import PPO
from rlfactory.batch import TokenBatch
from rlfactory.config.overrides import plan_from_words
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

TOKEN = Token(length=10, temperature=1.5, stop=list(ascii_lowercase))
# for the value loss
OLD_VALUES = torch.zeros(2, 2)
RETURNS = torch.ones(2, 2)
# within the range; past it towards the return; past it away from the return; far past the return
VALUES = torch.tensor([[0.1, 0.5], [-0.5, 3.0]])
SCORES = torch.tensor([1.0, -0.5, 0.25, 2.0, 0.0, 1.5, -1.0, 0.5])


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    return CausalLM(
        torch.device("cpu"), path=str(gpt2_folder), value_start="orthogonal", value_detach=False
    )


@pytest.fixture
def rollout(model: CausalLM) -> Rollout:
    prompts = ["This", "A film"] * 4
    ids, mask = model.encode(prompts)
    uniform = torch.rand(8, 10, generator=torch.Generator().manual_seed(3))
    tokens = model.rollout(ids, mask, TOKEN, uniform)
    assert not tokens.mask.all(), "some response must end early for these tests to mean anything"
    return Rollout(
        prompts=prompts,
        metadata=[{}] * 8,
        groups=torch.arange(8) % 2,
        index=torch.arange(8),
        tokens=tokens,
        texts=model.texts(tokens),
    )


def appraised(rollout: Rollout, scores: Tensor = SCORES, **options: Any) -> tuple[Tensor, Tensor]:
    done = PPO(TOKEN, **options).compute_advantages(
        replace(rollout, rewards={"main": scores}), "main"
    )
    return require(done.advantage, "advantages"), require(done.returns, "returns")


def batch_of(rollout: Rollout, model: CausalLM, **options: Any) -> TokenBatch:
    algo = PPO(TOKEN, **options)
    done = algo.compute_advantages(replace(rollout, rewards={"main": SCORES}), "main")
    return algo.training_items(algo.normalise_update(done), model, seed=0, iteration=0)


def test_before_an_update_the_ratio_is_one_and_the_loss_minus_the_mean_advantage(
    model: CausalLM, rollout: Rollout
) -> None:
    batch = batch_of(rollout, model, normalize="none", value_weight=0.0)
    loss = PPO(TOKEN, value_weight=0.0).loss(model, batch)
    assert loss.metrics["ratio/max_dev"].max() < 1e-5
    mean = batch.advantage[batch.tokens.mask].mean()
    assert loss.value.item() == pytest.approx(-mean.item(), abs=1e-5)


def test_the_gradient_pushes_towards_what_was_better(model: CausalLM, rollout: Rollout) -> None:
    algo = PPO(TOKEN, value_weight=0.0, normalize="none")
    batch = batch_of(rollout, model)
    batch = replace(
        batch, advantage=torch.where(torch.arange(8)[:, None] == 2, 1.0, 0.0).expand(8, 10)
    )
    algo.loss(model, batch).value.backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(model.parameter_groups(), lr=0.05).step()
    after = TOKEN.step(
        model.forward(batch.tokens)[0], next=batch.tokens.response[batch.tokens.mask]
    )
    moved = (after.log_prob - batch.tokens.log_prob[batch.tokens.mask]).detach()
    rows = batch.tokens.mask.nonzero()[:, 0]
    assert moved[rows == 2].sum() > 0


def test_one_step_advantages_are_differences_of_values(rollout: Rollout) -> None:
    advantage, returns = appraised(rollout, lam=0.0, normalize="none")
    tokens = require(rollout.tokens, "tokens")
    for row in range(8):
        length = int(tokens.mask[row].sum())
        values = tokens.value[row, :length]
        following = torch.cat([values[1:], SCORES[row : row + 1]])
        torch.testing.assert_close(advantage[row, :length], following - values)
        torch.testing.assert_close(returns[row, :length], following)


def test_what_tokens_pay_is_taken_off(rollout: Rollout) -> None:
    penalty = torch.rand(8, 10, generator=torch.Generator().manual_seed(0))
    mask = require(rollout.tokens, "tokens").mask
    _, free = appraised(rollout, lam=1.0, normalize="none")
    _, paid = appraised(replace(rollout, penalty=penalty), lam=1.0, normalize="none")
    to_come = (penalty * mask).flip(1).cumsum(1).flip(1)
    torch.testing.assert_close((free - paid)[mask], to_come[mask])


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("normalize", ["batch", "minibatch"])
def test_advantages_are_whitened_once(
    rollout: Rollout, model: CausalLM, normalize: Any, unbiased: bool
) -> None:
    batch = batch_of(rollout, model, normalize=normalize, whiten_unbiased=unbiased)
    kept = batch.advantage[batch.tokens.mask]
    assert kept.mean().item() == pytest.approx(0, abs=1e-5)
    assert kept.std(unbiased=unbiased).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("unbiased", [False, True])
def test_token_rewards_are_whitened(rollout: Rollout, unbiased: bool) -> None:
    """With `gamma=0` and values of 0, advantages are the token rewards."""
    tokens = replace(require(rollout.tokens, "tokens"), value=torch.zeros(8, 10))
    options: dict[str, Any] = {"gamma": 0.0, "normalize": "none", "whiten_unbiased": unbiased}
    plain = replace(rollout, tokens=tokens)
    rewards, _ = appraised(plain, **options)
    found, _ = appraised(plain, whiten_token_rewards=True, **options)
    kept, scaled = rewards[tokens.mask], found[tokens.mask]
    expected = (kept - kept.mean()) / kept.std(unbiased=unbiased) + kept.mean()
    torch.testing.assert_close(scaled, expected)


@pytest.mark.parametrize(
    ("preset", "unbiased"),
    [
        ("openai_sentiment", False),  # lm-human-preferences: tf.nn.moments
        ("openai_tldr reward.path=owner/rm", False),
        ("openai_cnndm reward.path=owner/rm prompts.path=owner/news", False),
        ("trl_legacy", True),  # masked_var(unbiased=True), as of TRL's later versions
        ("trl_v2", True),
        ("trl_tldr", True),
        ("trlx_randomwalks", True),  # torch.var_mean; only its code for several processes is biased
        ("trlx_sentiments", True),
        ("gpt2_negative", True),  # the walkthrough's Tensor.std
        ("gpt2_negative_base", True),
    ],
)
def test_presets_whiten_as_published(preset: str, unbiased: bool) -> None:
    config = plan_from_words(*f"experiment={preset}".split()).config
    assert config["algo"]["whiten_unbiased"] is unbiased


@pytest.mark.parametrize(
    ("preset", "temperature", "kl"), [("tldr", 0.7, 0.03), ("cnndm", 0.5, 0.01)]
)
def test_summaries_are_as_published(preset: str, temperature: float, kl: float) -> None:
    """The settings of openai/lm-human-preferences' launch.py for these two tasks."""
    own = ("reward.path=owner/rm", "prompts.path=owner/posts")
    config = plan_from_words(f"experiment=openai_{preset}", *own).config
    dynamics, coefficient = config["dynamics"], config["regularizer"]["coefficient"]
    assert (dynamics["length"], dynamics["stop"], dynamics["stop_after"]) == (75, ["\n"], 55)
    assert dynamics["temperature"] == temperature
    assert (coefficient["_target_"].rpartition(".")[2], coefficient["value"]) == ("Fixed", kl)
    assert config["regularizer"]["placement"] == "reward"
    assert config["optimizer"]["lr"] == config["model"]["value_lr"] == 2e-6
    assert (config["prompts_per_iteration"], config["epochs"]) == (32, 4)
    assert config["iterations"] * 32 == 1_000_000
    assert config["algo"]["whiten_token_rewards"] is False


@pytest.mark.parametrize("reward_scale", ["none", "batch", "whiten"])
@pytest.mark.parametrize("reward_shift", [True, False])
def test_constant_scores_give_no_nan(
    rollout: Rollout, reward_scale: Any, reward_shift: bool
) -> None:
    tokens = replace(require(rollout.tokens, "tokens"), value=torch.zeros(8, 10))
    advantage, _ = appraised(
        replace(rollout, tokens=tokens),
        torch.full((8,), 0.996),
        reward_scale=reward_scale,
        reward_shift=reward_shift,
        lam=1.0,
    )
    assert advantage.isfinite().all()
    if reward_scale != "none" and (reward_shift or reward_scale == "batch"):
        assert torch.equal(advantage, torch.zeros_like(advantage))


def test_a_response_without_an_end_pays(rollout: Rollout) -> None:
    ended = require(rollout.tokens, "tokens").ended
    assert 0 < int(ended.sum()) < 8
    options: dict[str, Any] = {"lam": 1.0, "normalize": "none"}
    _, plain = appraised(rollout, **options)
    _, fined = appraised(rollout, missing_end="penalty", missing_end_value=3.0, **options)
    _, replaced = appraised(rollout, missing_end="replace", missing_end_value=1.0, **options)
    torch.testing.assert_close(fined[:, 0], plain[:, 0] - 3.0 * ~ended)
    torch.testing.assert_close(replaced[:, 0], torch.where(ended, plain[:, 0], -1.0))


def test_group_baselines_give_each_token_its_responses_advantage(rollout: Rollout) -> None:
    tokens = require(rollout.tokens, "tokens")
    found, _ = appraised(rollout, baseline="group", normalize="none")
    expected = group_advantages(SCORES, rollout.groups)
    torch.testing.assert_close(found, expected[:, None] * tokens.mask)
    alone, _ = appraised(rollout, baseline="rloo", normalize="none")
    others = (SCORES[0::2].sum() - SCORES[0]) / 3
    assert alone[0, 0].item() == pytest.approx((SCORES[0] - others).item())


def test_the_bonus_is_for_entropy(model: CausalLM, rollout: Rollout) -> None:
    batch = batch_of(rollout, model)
    with_bonus = PPO(TOKEN, entropy_weight=0.5).loss(model, batch)
    without = PPO(TOKEN).loss(model, batch)
    entropy = with_bonus.metrics["policy/entropy"].mean()
    assert entropy > 0
    difference = with_bonus.value - without.value
    assert difference.item() == pytest.approx(-0.5 * entropy.item(), abs=1e-5)


def test_the_critic_learns_the_returns(model: CausalLM, rollout: Rollout) -> None:
    batch = batch_of(rollout, model)
    algo = PPO(TOKEN, value_weight=1.0, value_clip=None, clip_range=1e-6)
    optimizer = torch.optim.Adam(model.critic.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = algo.loss(model, batch)

        losses.append(loss.metrics["loss/value"].mean().item())
        loss.value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert losses[-1] < losses[0] / 2


def test_micro_batches_add_up(model: CausalLM, rollout: Rollout) -> None:
    batch = batch_of(rollout, model)
    algo = PPO(TOKEN, entropy_weight=0.1)
    whole = algo.loss(model, batch).value
    parts = [algo.loss(model, part).value * part.weight / batch.weight for part in batch.split(3)]
    assert sum(p.item() for p in parts) == pytest.approx(whole.item(), abs=1e-5)


def test_without_tokens_it_is_an_error() -> None:
    empty = Rollout(prompts=[], metadata=[], groups=torch.zeros(0), index=torch.zeros(0))
    with pytest.raises(ValueError, match="tokens"):
        PPO(TOKEN).compute_advantages(empty, "main")


def test_golden_value_loss() -> None:
    """By hand: the clipped values are 0.1, 0.2, -0.2 and 0.2."""
    expected = torch.tensor([[0.405, 0.32], [1.125, 2.0]])
    torch.testing.assert_close(value_loss(VALUES, OLD_VALUES, RETURNS, 0.2), expected)


def value_gradient(values: Tensor, clip: float | None) -> Tensor:
    values = values.clone().requires_grad_()
    return torch.autograd.grad(value_loss(values, OLD_VALUES, RETURNS, clip).sum(), values)[0]


def test_only_a_step_towards_the_return_is_stopped() -> None:
    expected = torch.tensor([[-0.9, 0.0], [-1.5, 2.0]])
    torch.testing.assert_close(value_gradient(VALUES, 0.2), expected)


def test_without_a_clip_it_is_half_the_square() -> None:
    torch.testing.assert_close(
        value_loss(VALUES, OLD_VALUES, RETURNS, None), 0.5 * (VALUES - 1) ** 2
    )
    torch.testing.assert_close(value_gradient(VALUES, None), VALUES - 1)


@pytest.mark.parametrize("clip", [0.0, 0.2, 1.0, 100.0])
def test_a_clip_only_ever_adds(clip: float) -> None:
    generator = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 8, 5, generator=generator)
    plain = value_loss(values, old, returns, None)
    assert (value_loss(values, old, returns, clip) >= plain).all()
    assert torch.equal(value_loss(old, old, returns, clip), value_loss(old, old, returns, None))
    torch.testing.assert_close(value_loss(values, old, returns, 100.0), plain)


def test_a_dense_score_has_the_same_sum_and_reaches_every_token(rollout: Rollout) -> None:
    mask = require(rollout.tokens, "tokens").mask
    options = {"gamma": 0.0, "lam": 0.0, "normalize": "none"}
    values = require(rollout.tokens, "tokens").value
    dense = appraised(rollout, score_placement="uniform", **options)[0] + values * mask
    last = appraised(rollout, **options)[0] + values * mask
    torch.testing.assert_close(dense.sum(1), SCORES.float(), atol=1e-5, rtol=0)
    torch.testing.assert_close(last.sum(1), SCORES.float(), atol=1e-5, rtol=0)
    assert torch.equal(dense != 0, mask & (SCORES != 0)[:, None])


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({}, True),
        ({"baseline": "group", "value_weight": 0.0}, False),
        ({"baseline": "group", "value_weight": 0.1}, True),
        ({"baseline": "none", "value_weight": 0.0}, False),
    ],
    ids=str,
)
def test_a_critic_is_there_where_values_are_read_or_learned(
    options: dict[str, Any], needs: bool
) -> None:
    assert PPO.needs_critic(options) is needs
    assert PPO.needs_critic(vars(PPO(Token(), **options))) is needs
