import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from rlfactory.algo.ops.token_kl import ROWS, Estimator, entropy, estimate_kl, exact_kl

VOCABULARY = 5


def logits(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(3, 4, VOCABULARY, generator=generator)


@pytest.fixture
def log_p() -> Tensor:
    return logits(0).log_softmax(-1)


@pytest.fixture
def log_q() -> Tensor:
    return logits(1).log_softmax(-1)


def test_exact_is_torchs_divergence_of_the_first_from_the_second(
    log_p: Tensor, log_q: Tensor
) -> None:
    p, q = (torch.distributions.Categorical(logits=x) for x in (log_p, log_q))
    torch.testing.assert_close(exact_kl(log_p, log_q), torch.distributions.kl_divergence(p, q))
    assert (exact_kl(log_p, log_q) > 0).all()
    assert torch.equal(exact_kl(log_p, log_p), torch.zeros(3, 4))


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_an_estimator_is_unbiased(estimator: Estimator, log_p: Tensor, log_q: Tensor) -> None:
    """By enumeration of all tokens that p may draw."""
    expectation = (log_p.exp() * estimate_kl(log_p - log_q, estimator)).sum(-1)
    torch.testing.assert_close(expectation, exact_kl(log_p, log_q))


@pytest.mark.parametrize("estimator", ["k2", "k3", "abs"])
def test_all_but_k1_are_positive_away_from_the_reference(
    estimator: Estimator, log_p: Tensor, log_q: Tensor
) -> None:
    assert (estimate_kl(log_p - log_q, estimator) > 0).all()
    assert (estimate_kl(log_p - log_q, "k1") < 0).any()


@pytest.mark.parametrize("estimator", get_args(Estimator))
def test_the_reference_is_at_zero(estimator: Estimator) -> None:
    assert torch.equal(estimate_kl(torch.zeros(2, 3), estimator), torch.zeros(2, 3))


def test_values() -> None:
    """Golden numbers: the formulas of TRL, evaluated by hand at log ratios -2, 1 and 1e-4."""
    log_ratio = torch.tensor([[-2.0, 1.0, 1e-4]])
    golden = {
        "k1": [-2.0, 1.0, 1e-4],
        "k2": [2.0, 0.5, 5e-9],
        "k3": [math.exp(2) - 3, math.exp(-1), 5e-9],
        "abs": [2.0, 1.0, 1e-4],
    }
    for estimator in get_args(Estimator):
        found = estimate_kl(log_ratio, estimator)
        torch.testing.assert_close(found, torch.tensor([golden[estimator]]), rtol=2e-6, atol=1e-11)
        assert estimate_kl(log_ratio.half(), estimator).dtype == torch.float32


def gradient(estimator: Estimator | None) -> Tensor:
    """Expected gradient with respect to the logits of a loss on tokens that p has drawn."""
    x = logits(0).requires_grad_()
    log_p, log_q = x.log_softmax(-1), logits(1).log_softmax(-1)
    if estimator is None:
        loss = exact_kl(log_p, log_q)
    else:
        loss = (log_p.exp().detach() * estimate_kl(log_p - log_q, estimator)).sum(-1)
    return torch.autograd.grad(loss.sum(), x)[0]


def test_as_a_loss_k1_has_no_gradient_and_k2_that_of_the_divergence() -> None:
    """What language.md 1.5 says of estimators in the loss; k3's is another divergence's."""
    torch.testing.assert_close(gradient("k1"), torch.zeros(3, 4, VOCABULARY), rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient("k2"), gradient(None), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(gradient("k3"), gradient(None), atol=0.1)


def test_the_gradient_vanishes_only_at_the_reference() -> None:
    assert (gradient(None).abs().amax(-1) > 1e-3).all()
    x = logits(1).requires_grad_()
    exact_kl(x.log_softmax(-1), logits(1).log_softmax(-1)).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.zeros(3, 4, VOCABULARY), rtol=0, atol=1e-6)


def test_entropy_is_torchs_and_greatest_where_all_tokens_are_alike(log_p: Tensor) -> None:
    expected = torch.distributions.Categorical(logits=log_p).entropy()
    torch.testing.assert_close(entropy(log_p), expected)
    uniform = torch.zeros(VOCABULARY, requires_grad=True)
    found = entropy(uniform.log_softmax(-1))
    torch.testing.assert_close(found, torch.tensor(math.log(VOCABULARY)))
    assert (found > entropy(log_p)).all()


@pytest.mark.parametrize("count", [0, 1, ROWS * torch.get_num_threads() + 1])
def test_entropy_of_tokens_in_parts_has_the_bits_of_the_whole(count: int) -> None:
    log_p = torch.randn(count, 300, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    assert torch.equal(entropy(log_p), entropy(log_p.clone().requires_grad_()).detach())


def test_exact_kl_has_a_gradient_of_exactly_0_where_both_are_equal() -> None:
    x = torch.randn(8, 500, generator=torch.Generator().manual_seed(0)).requires_grad_()
    log_p = x.log_softmax(-1)
    exact_kl(log_p, log_p.detach()).sum().backward()
    assert x.grad is not None
    assert not x.grad.any()
