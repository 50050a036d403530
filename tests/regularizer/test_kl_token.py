"""The divergence of tokens: measured, in the loss, in the reward."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.algo.ops.token_outputs import token_outputs
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.kl_token import KLToken
from rlfactory.rollout import Rollout, Tokens
from rlfactory.utils.pytree import require

TOKEN = Token(length=8, temperature=1.5)
ESTIMATORS = ["exact", "k1", "k2", "k3", "abs"]


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder))
    model.weights.add("reference")
    return model


def shifted(model: CausalLM) -> CausalLM:
    """The policy moved away from its reference."""
    generator = torch.Generator().manual_seed(5)
    for name, parameter in model.weights.parameters.items():
        if not name.startswith("critic"):
            parameter.data.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def drawn(model: CausalLM, dynamics: Token = TOKEN) -> Tokens:
    ids, mask = model.encode(["This", "A film"] * 2)
    uniform = torch.rand(4, 8, generator=torch.Generator().manual_seed(3))
    return model.rollout(ids, mask, dynamics, uniform)


def measure(
    model: CausalLM, dynamics: Token = TOKEN, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    regularizer = KLToken(dynamics, coefficient=Fixed(value=0.5), **options)
    tokens = require(
        regularizer.shape_reward(model, rollout(drawn(model, dynamics))).tokens, "tokens"
    )
    outputs, _ = token_outputs(model, dynamics, tokens)
    batch = TokenBatch(tokens, torch.zeros(4, 8), torch.zeros(4, 8))
    penalty, measured = regularizer.penalty(model, batch, outputs)
    return penalty, measured["kl/reference"]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_it_is_zero_at_the_reference_and_not_away_from_it(model: CausalLM, estimator: Any) -> None:
    penalty, kl = measure(model, estimator=estimator)
    assert penalty.item() == pytest.approx(0, abs=1e-6)
    _, moved = measure(shifted(model), estimator=estimator)
    assert moved.abs().mean() > 1e-2
    assert kl.shape == moved.shape or len(kl) > 0


@pytest.mark.parametrize("estimator", ["exact", "k2", "k3", "abs"])
def test_in_the_loss_it_has_a_gradient(model: CausalLM, estimator: Any) -> None:
    penalty, kl = measure(shifted(model), estimator=estimator)
    assert penalty.item() == pytest.approx(0.5 * kl.mean().item(), rel=1e-5)
    penalty.backward()  # type: ignore[no-untyped-call]
    weight = model.weights.parameters["transformer.wte.weight"]
    assert weight.grad is not None
    assert weight.grad.abs().max() > 0


@pytest.mark.parametrize("placement", ["reward", "none"])
def test_elsewhere_it_only_measures(model: CausalLM, placement: Any) -> None:
    penalty, kl = measure(shifted(model), placement=placement)
    assert penalty.item() == 0
    assert not penalty.requires_grad
    assert kl.mean() > 0


def rollout(tokens: Tokens) -> Rollout:
    return Rollout(
        prompts=[""] * 4,
        metadata=[{}] * 4,
        groups=torch.arange(4),
        index=torch.arange(4),
        tokens=tokens,
    )


@pytest.mark.parametrize("micro_batch", [1, 3, 32])
def test_in_the_reward_each_token_pays_for_itself(model: CausalLM, micro_batch: int) -> None:
    tokens = drawn(shifted(model))
    regularizer = KLToken(
        TOKEN,
        coefficient=Fixed(value=0.5),
        placement="reward",
        estimator="k1",
        micro_batch=micro_batch,
    )
    paid = require(regularizer.shape_reward(model, rollout(tokens)).penalty, "penalty")
    with model.weights("reference"):
        logits, _ = model.forward(tokens)
    other = TOKEN.step(logits, next=tokens.response[tokens.mask]).log_prob
    expected = 0.5 * (tokens.log_prob[tokens.mask] - other)
    torch.testing.assert_close(paid[tokens.mask], expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(paid[~tokens.mask], torch.zeros_like(paid[~tokens.mask]))
    assert not paid.requires_grad


@pytest.mark.parametrize("estimator", ["exact", "k1"])
@pytest.mark.parametrize("top_k", [0, 3])
def test_what_was_paid_is_measured_wherever_the_policy_is_by_then(
    model: CausalLM, estimator: Any, top_k: int
) -> None:
    """As OpenAI's and TRL's `objective/kl`; a policy that has moved away from what it drew would
    find its own samples unlikely, and a KL below 0.
    """
    dynamics = Token(length=8, top_k=top_k)
    tokens = drawn(shifted(model), dynamics)
    regularizer = KLToken(
        dynamics, coefficient=Fixed(value=0.5), placement="reward", estimator=estimator
    )
    found = regularizer.shape_reward(model, rollout(tokens))
    outputs, _ = token_outputs(shifted(model), dynamics, tokens)
    seen = require(found.tokens, "tokens")
    batch = TokenBatch(seen, torch.zeros(4, 8), torch.zeros(4, 8))
    measured = regularizer.penalty(model, batch, outputs)[1]["kl/reference"]
    paid = require(found.penalty, "penalty")[tokens.mask]
    assert torch.equal(0.5 * measured, paid)


@pytest.mark.parametrize("placement", ["loss", "none"])
def test_a_penalty_of_the_loss_leaves_the_reward_alone(model: CausalLM, placement: Any) -> None:
    regularizer = KLToken(TOKEN, coefficient=Fixed(value=0.5), placement=placement)
    assert regularizer.shape_reward(model, rollout(drawn(model))).penalty is None


@pytest.mark.parametrize("placement", ["loss", "reward"])
@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_a_token_that_the_reference_would_never_draw_is_compared_all_the_same(
    model: CausalLM, placement: Any, estimator: Any
) -> None:
    greedy = Token(length=8, top_k=1)
    tokens = drawn(shifted(model), greedy)
    regularizer = KLToken(
        greedy, coefficient=Fixed(value=0.5), placement=placement, estimator=estimator
    )
    found = regularizer.shape_reward(model, rollout(tokens))
    _, kl = measure(model, greedy, placement=placement, estimator=estimator)
    assert kl.isfinite().all()
    assert kl.abs().sum() > 0
    if placement == "reward":
        paid = require(found.penalty, "penalty")
        torch.testing.assert_close(paid[tokens.mask], 0.5 * kl, atol=1e-5, rtol=1e-4)


def test_the_reference_is_asked_once_for_all_passes(
    model: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    regularizer = KLToken(TOKEN, coefficient=Fixed(value=0.5), estimator="k3")
    tokens = require(regularizer.shape_reward(model, rollout(drawn(model))).tokens, "tokens")
    outputs, _ = token_outputs(model, TOKEN, tokens)
    batch = TokenBatch(tokens, torch.zeros(4, 8), torch.zeros(4, 8))
    monkeypatch.delattr(CausalLM, "measure")
    for _ in range(3):
        regularizer.penalty(model, batch, outputs)
