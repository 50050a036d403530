import pytest
import torch
from torch import Tensor

from rlfactory.algo.masked import masked_mean, masked_std, whiten

MASK = torch.arange(6) < torch.tensor([6, 2, 0, 4])[:, None]
NOTHING = torch.zeros(4, 6, dtype=torch.bool)


@pytest.fixture
def x() -> Tensor:
    return 3 * torch.randn(4, 6, generator=torch.Generator().manual_seed(0)) + 2


@pytest.mark.parametrize("unbiased", [False, True])
def test_statistics_are_those_of_the_kept_subset(x: Tensor, unbiased: bool) -> None:
    torch.testing.assert_close(masked_mean(x, MASK), x[MASK].mean())
    found = masked_std(x, MASK, unbiased=unbiased)
    torch.testing.assert_close(found, x[MASK].std(unbiased=unbiased))


@pytest.mark.parametrize("shift_mean", [False, True])
@pytest.mark.parametrize("unbiased", [False, True])
def test_whiten_is_the_published_formula_on_the_kept_subset(
    x: Tensor, shift_mean: bool, unbiased: bool
) -> None:
    """OpenAI's and TRL's `whiten`: `(x - mean) * rsqrt(var + 1e-8)`, plus the mean."""
    kept = x[MASK]
    expected = (kept - kept.mean()) * torch.rsqrt(kept.var(unbiased=unbiased) + 1e-8)
    expected = expected if shift_mean else expected + kept.mean()
    found = whiten(x, MASK, shift_mean=shift_mean, unbiased=unbiased)
    torch.testing.assert_close(found[MASK], expected)
    assert torch.equal(found[~MASK], torch.zeros(12))


@pytest.mark.parametrize("garbage", [1e30, float("nan"), float("inf"), -float("inf")])
def test_padding_does_not_matter(x: Tensor, garbage: float) -> None:
    dirty = x.masked_fill(~MASK, garbage)
    assert torch.equal(masked_mean(dirty, MASK), masked_mean(x, MASK))
    assert torch.equal(masked_std(dirty, MASK), masked_std(x, MASK))
    for shift_mean in (True, False):
        found = whiten(dirty, MASK, shift_mean=shift_mean)
        assert torch.equal(found, whiten(x, MASK, shift_mean=shift_mean))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 0.99560546875, -7.7, 6e4])
@pytest.mark.parametrize("unbiased", [False, True])
def test_a_constant_is_worth_nothing(value: float, dtype: torch.dtype, unbiased: bool) -> None:
    """In float16 the walkthrough's `whiten` gives NaN here (language.md 1.10, row 4)."""
    constant = torch.full((4, 6), value, dtype=dtype)
    found = whiten(constant, MASK, unbiased=unbiased)
    assert torch.equal(found, torch.zeros(4, 6))
    kept = whiten(constant, MASK, shift_mean=False, unbiased=unbiased)
    torch.testing.assert_close(kept[MASK], constant[MASK].float())


def test_half_precision_is_taken_up_to_float32(x: Tensor) -> None:
    half = (1000 * x).half()  # its squares, and the sum, are out of float16's range
    assert torch.equal(whiten(half, MASK), whiten(half.float(), MASK))
    assert torch.equal(masked_mean(half, MASK), masked_mean(half.float(), MASK))
    assert torch.equal(masked_std(half, MASK), masked_std(half.float(), MASK))
    assert whiten(half, MASK).dtype == torch.float32


@pytest.mark.parametrize("unbiased", [False, True])
def test_no_token_and_a_single_one_are_finite(x: Tensor, unbiased: bool) -> None:
    single = NOTHING.clone()
    single[0, 0] = True
    for mask in (NOTHING, single):
        assert masked_std(x, mask, unbiased=unbiased) == 0
        assert torch.equal(whiten(x, mask, unbiased=unbiased), torch.zeros(4, 6))
    assert masked_mean(x, NOTHING) == 0
    assert masked_mean(x, single) == x[0, 0]


def test_the_mean_weighs_every_token_alike_in_the_gradient(x: Tensor) -> None:
    x.requires_grad_()
    masked_mean(x, MASK).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, MASK.float() / 12)
