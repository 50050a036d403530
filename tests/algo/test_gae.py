import pytest
import torch
from torch import Tensor

from rlfactory.algo.gae import gae, terminal_rewards

LENGTHS = torch.tensor([7, 1, 0, 4, 6])
MASK = torch.arange(7) < LENGTHS[:, None]


@pytest.fixture
def values() -> Tensor:
    return torch.randn(5, 7, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def rewards() -> Tensor:
    return torch.randn(5, 7, generator=torch.Generator().manual_seed(1))


def closed_form(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    expected = torch.zeros(5, 7, dtype=torch.double)
    for row, length in enumerate(LENGTHS.tolist()):
        v, r = values[row, :length].double().tolist() + [0.0], rewards[row].double().tolist()
        delta = [r[t] + gamma * v[t + 1] - v[t] for t in range(length)]
        for t in range(length):
            expected[row, t] = sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, length))
    return expected


@pytest.mark.parametrize(("gamma", "lam"), [(1, 0.95), (0.99, 0.9), (0.5, 1), (0, 1), (1, 0)])
def test_is_the_sum_of_discounted_residuals(
    rewards: Tensor, values: Tensor, gamma: float, lam: float
) -> None:
    found = gae(rewards, values, MASK, gamma=gamma, lam=lam)
    torch.testing.assert_close(found, closed_form(rewards, values, gamma, lam).float())
    assert found.dtype == torch.float32


def test_without_lambda_and_discount_it_is_the_one_step_advantage(values: Tensor) -> None:
    """The walkthrough's advantage (language.md 1.4): V_{t+1} - V_t, and R - V_T at the end."""
    scores = torch.tensor([3.0, -1.0, 9.0, 0.5, 2.0])
    found = gae(terminal_rewards(scores, MASK), values, MASK, gamma=1, lam=0)
    for row, length in enumerate(LENGTHS.tolist()):
        following = torch.cat([values[row, 1:length], scores[row : row + 1]])[:length]
        torch.testing.assert_close(found[row, :length], following - values[row, :length])


def test_with_lambda_one_it_is_the_return_to_go_minus_the_value(
    rewards: Tensor, values: Tensor
) -> None:
    to_go = (rewards * MASK).flip(1).cumsum(1).flip(1)
    found = gae(rewards, values, MASK, gamma=1, lam=1)
    torch.testing.assert_close(found, torch.where(MASK, to_go - values, 0.0))


@pytest.mark.parametrize("garbage", [1e30, float("nan"), float("inf"), -float("inf")])
def test_padding_does_not_matter(rewards: Tensor, values: Tensor, garbage: float) -> None:
    found = gae(
        rewards.masked_fill(~MASK, garbage),
        values.masked_fill(~MASK, garbage),
        MASK,
        gamma=0.99,
        lam=0.95,
    )
    assert torch.equal(found, gae(rewards, values, MASK, gamma=0.99, lam=0.95))
    assert torch.equal(found[~MASK], torch.zeros(int((~MASK).sum())))


def test_a_perfect_critic_leaves_nothing(rewards: Tensor) -> None:
    to_go = (rewards * MASK).flip(1).cumsum(1).flip(1)
    found = gae(rewards, to_go, MASK, gamma=1, lam=0.95)
    torch.testing.assert_close(found, torch.zeros(5, 7), rtol=0, atol=1e-6)


def test_is_float32_from_half_precision_and_carries_no_gradient(
    rewards: Tensor, values: Tensor
) -> None:
    half = values.half().requires_grad_()
    found = gae(rewards.half(), half, MASK, gamma=1, lam=0.95)
    assert found.dtype == torch.float32
    assert not found.requires_grad
    expected = gae(rewards.half().float(), half.float(), MASK, gamma=1, lam=0.95)
    assert torch.equal(found, expected)


def test_leaves_its_arguments_alone(rewards: Tensor, values: Tensor) -> None:
    before = rewards.clone(), values.clone()
    gae(rewards, values, MASK, gamma=1, lam=0.95)
    assert torch.equal(rewards, before[0])
    assert torch.equal(values, before[1])


def test_a_score_lies_on_the_last_token_and_an_empty_response_has_none() -> None:
    found = terminal_rewards(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), MASK)
    expected = torch.zeros(5, 7)
    expected[0, 6], expected[1, 0], expected[3, 3], expected[4, 5] = 1, 2, 4, 5
    assert torch.equal(found, expected)
    assert terminal_rewards(torch.ones(5, dtype=torch.half), MASK).dtype == torch.float32
