import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.gae import (
    gae,
    masked_mean,
    masked_variance,
    terminal_rewards,
    uniform_rewards,
    whiten,
)

LENGTHS = torch.tensor([7, 1, 0, 4, 6])
MASK = torch.arange(7) < LENGTHS[:, None]

# for whitening
TOKENS = torch.arange(6) < torch.tensor([6, 2, 0, 4])[:, None]
NOTHING = torch.zeros(4, 6, dtype=torch.bool)


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


@pytest.fixture
def x() -> Tensor:
    return 3 * torch.randn(4, 6, generator=torch.Generator().manual_seed(0)) + 2


@pytest.mark.parametrize("unbiased", [False, True])
def test_statistics_are_those_of_the_kept_subset(x: Tensor, unbiased: bool) -> None:
    torch.testing.assert_close(masked_mean(x, TOKENS), x[TOKENS].mean())
    found = masked_variance(x, TOKENS, unbiased=unbiased).sqrt()
    torch.testing.assert_close(found, x[TOKENS].std(unbiased=unbiased))


@pytest.mark.parametrize("shift_mean", [False, True])
@pytest.mark.parametrize("unbiased", [False, True])
def test_whiten_is_the_published_formula_on_the_kept_subset(
    x: Tensor, shift_mean: bool, unbiased: bool
) -> None:
    """OpenAI's and TRL's `whiten`: `(x - mean) * rsqrt(var + 1e-8)`, plus the mean."""
    kept = x[TOKENS]
    expected = (kept - kept.mean()) * torch.rsqrt(kept.var(unbiased=unbiased) + 1e-8)
    expected = expected if shift_mean else expected + kept.mean()
    found = whiten(x, TOKENS, shift_mean=shift_mean, unbiased=unbiased)
    torch.testing.assert_close(found[TOKENS], expected)
    assert torch.equal(found[~TOKENS], torch.zeros(12))


@pytest.mark.parametrize("garbage", [1e30, float("nan"), float("inf"), -float("inf")])
def test_padding_does_not_matter_for_whitening(x: Tensor, garbage: float) -> None:
    dirty = x.masked_fill(~TOKENS, garbage)
    assert torch.equal(masked_mean(dirty, TOKENS), masked_mean(x, TOKENS))
    assert torch.equal(masked_variance(dirty, TOKENS), masked_variance(x, TOKENS))
    for shift_mean in (True, False):
        found = whiten(dirty, TOKENS, shift_mean=shift_mean)
        assert torch.equal(found, whiten(x, TOKENS, shift_mean=shift_mean))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 0.99560546875, -7.7, 6e4])
@pytest.mark.parametrize("unbiased", [False, True])
def test_a_whitened_constant_is_zero(value: float, dtype: torch.dtype, unbiased: bool) -> None:
    """In float16 the walkthrough's `whiten` gives NaN here (language.md 1.10, row 4)."""
    constant = torch.full((4, 6), value, dtype=dtype)
    found = whiten(constant, TOKENS, unbiased=unbiased)
    assert torch.equal(found, torch.zeros(4, 6))
    kept = whiten(constant, TOKENS, shift_mean=False, unbiased=unbiased)
    torch.testing.assert_close(kept[TOKENS], constant[TOKENS].float())


def test_half_precision_is_taken_up_to_float32(x: Tensor) -> None:
    half = (1000 * x).half()  # its squares, and the sum, are out of float16's range
    assert torch.equal(whiten(half, TOKENS), whiten(half.float(), TOKENS))
    assert torch.equal(masked_mean(half, TOKENS), masked_mean(half.float(), TOKENS))
    assert torch.equal(masked_variance(half, TOKENS), masked_variance(half.float(), TOKENS))
    assert whiten(half, TOKENS).dtype == torch.float32


@pytest.mark.parametrize("unbiased", [False, True])
def test_no_token_and_a_single_one_are_finite(x: Tensor, unbiased: bool) -> None:
    single = NOTHING.clone()
    single[0, 0] = True
    for mask in (NOTHING, single):
        assert masked_variance(x, mask, unbiased=unbiased) == 0
        assert torch.equal(whiten(x, mask, unbiased=unbiased), torch.zeros(4, 6))
    assert masked_mean(x, NOTHING) == 0
    assert masked_mean(x, single) == x[0, 0]


def test_the_mean_weighs_every_token_alike_in_the_gradient(x: Tensor) -> None:
    x.requires_grad_()
    masked_mean(x, TOKENS).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, TOKENS.float() / 12)


def test_a_score_is_spread_evenly_over_its_response_and_an_empty_one_has_none() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
    spread = uniform_rewards(torch.tensor([3.0, -2.0, 5.0]), mask)
    expected = [[1.0, 1.0, 1.0, 0.0], [-2.0, 0.0, 0.0, 0.0], [0.0] * 4]
    torch.testing.assert_close(spread, torch.tensor(expected), rtol=0, atol=0)


def test_spreading_a_score_moves_credit_to_early_tokens_and_keeps_the_return(
    values: Tensor,
) -> None:
    mask = torch.ones_like(values, dtype=torch.bool)
    scores = torch.linspace(-1, 1, len(values))
    dense, sparse = (
        gae(place(scores, mask), values, mask, gamma=1.0, lam=1.0)
        for place in (uniform_rewards, terminal_rewards)
    )
    torch.testing.assert_close(dense[:, 0], sparse[:, 0])
    # what is left of the return after t of n tokens: all of a score at the end, (n - t) / n of this
    gone = torch.arange(values.shape[1]) / values.shape[1]
    torch.testing.assert_close(sparse - dense, scores[:, None] * gone, atol=1e-5, rtol=0)
