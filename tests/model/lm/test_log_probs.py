"""Log-probabilities under one weight set of tokens sampled by another."""

from pathlib import Path

import pytest
import torch

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.text_base import response_log_prob
from rlfactory.rollout import Tokens


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder))
    model.weights.add("reference")
    for parameter in model.weights.parameters.values():
        parameter.data.mul_(0.8)
    return model


def drawn(model: CausalLM, dynamics: Token) -> Tokens:
    ids, mask = model.encode(["This", "A film", ""])
    uniform = torch.rand(3, 8, generator=torch.Generator().manual_seed(3))
    return model.rollout(ids, mask, dynamics, uniform)


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_the_policy_finds_its_own_texts_as_likely_as_it_drew_them(
    model: CausalLM, batch: int
) -> None:
    dynamics = Token(length=8, temperature=0.7)
    tokens = drawn(model, dynamics)
    found = response_log_prob(model, "policy", tokens, dynamics, batch)
    torch.testing.assert_close(found, tokens.log_prob, atol=1e-5, rtol=1e-4)
    assert not found.requires_grad


def test_another_weight_set_finds_them_less_likely(model: CausalLM) -> None:
    dynamics = Token(length=8)
    tokens = drawn(model, dynamics)
    other = response_log_prob(model, "reference", tokens, dynamics, 100)
    with model.weights("reference"):
        step = dynamics.step(model.forward(tokens)[0], next=tokens.response[tokens.mask])
    torch.testing.assert_close(other[tokens.mask], step.log_prob)
    assert not torch.allclose(other, tokens.log_prob, atol=1e-3)


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 0.01}])
def test_truncated_ones_are_compared_before_truncation(
    model: CausalLM, options: dict[str, float]
) -> None:
    dynamics = Token(length=8, **options)  # type: ignore[arg-type]
    tokens = drawn(model, dynamics)
    found = response_log_prob(model, "reference", tokens, dynamics, 100)
    whole = response_log_prob(model, "reference", tokens, Token(length=8), 100)
    torch.testing.assert_close(found, whole)
    assert found.isfinite().all()


def test_padding_gets_nothing(model: CausalLM) -> None:
    tokens = drawn(model, Token(length=8))
    tokens.mask[1, 3:] = False
    found = tokens.pad(torch.ones(int(tokens.mask.sum())))
    assert torch.equal(found, tokens.mask.float())
