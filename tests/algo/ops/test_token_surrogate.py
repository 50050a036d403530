"""The surrogate of token policies: golden numbers by hand, and what its options mean."""

from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from rlfactory.algo.ops.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.algo.ops.token_surrogate import (
    Surrogate,
    TokenSurrogate,
    level_log_ratio,
    token_weights,
)
from rlfactory.rollout import Tokens

RATIO = torch.tensor([0.5, 0.9, 1.25, 2.0, 0.5, 2.0])
ADVANTAGE = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0, -1.0])
MASK = torch.tensor([[True, True, True], [True, False, False]])


def tokens_of(mask: Tensor) -> Tokens:
    count, width = mask.shape
    ids, zeros = torch.zeros(count, width, dtype=torch.int64), torch.zeros(count, width)
    prompt = torch.ones(count, 1, dtype=torch.bool)
    ended = torch.ones(count, dtype=torch.bool)
    return Tokens(ids[:, :1], prompt, ids, mask, ended, zeros, zeros).measured()


def losses(log_prob: Tensor | None = None, **options: Any) -> Tensor:
    log_prob = torch.zeros(6) if log_prob is None else log_prob
    tokens = tokens_of(torch.ones(6, 1, dtype=torch.bool))
    return TokenSurrogate(**options).losses(log_prob, RATIO.log(), ADVANTAGE, tokens).losses


def test_golden_clips() -> None:
    """By hand; with a higher clip of 1.28 a ratio of 1.25 still counts."""
    torch.testing.assert_close(losses(), -torch.tensor([0.5, 0.9, 1.2, 1.2, -0.8, -2.0]))
    higher = losses(clip_high=0.28)
    torch.testing.assert_close(higher, -torch.tensor([0.5, 0.9, 1.25, 1.28, -0.8, -2.0]))
    dual = losses(dual_clip=1.5)
    torch.testing.assert_close(dual, -torch.tensor([0.5, 0.9, 1.2, 1.2, -0.8, -1.5]))


def test_a_dual_clip_bounds_the_loss_and_stops_its_gradient() -> None:
    log_ratio = torch.tensor([1.0, 1.0], requires_grad=True)
    advantage = torch.tensor([-1.0, 1.0])
    found, _ = clipped_surrogate(log_ratio, advantage, 0.2, dual_clip=2.0)
    torch.testing.assert_close(found, torch.tensor([2.0, -1.2]))
    (gradient,) = torch.autograd.grad(found.sum(), log_ratio)
    assert gradient.tolist() == [0.0, 0.0]


def test_golden_cispo() -> None:
    """By hand: weights clipped to [0.8, 1.2] times -A log p; only log p has a gradient."""
    log_prob = torch.full((6,), -2.0, requires_grad=True)
    found = losses(log_prob, kind="cispo")
    torch.testing.assert_close(found, torch.tensor([1.6, 1.8, 2.4, 2.4, -1.6, -2.4]))
    (gradient,) = torch.autograd.grad(found.sum(), log_prob)
    torch.testing.assert_close(gradient, -torch.tensor([0.8, 0.9, 1.2, 1.2, -0.8, -1.2]))


def test_cispo_with_a_range_of_one_has_no_lower_bound() -> None:
    found = losses(torch.full((6,), -1.0), kind="cispo", clip_range=1.0, clip_high=0.5)
    torch.testing.assert_close(found, torch.tensor([0.5, 0.9, 1.25, 1.5, -0.5, -1.5]))


def test_golden_sapo() -> None:
    """By hand: 4 / tau sigmoid(tau (r - 1)), with tau = 1 above and 2 for negative advantages."""
    found = losses(kind="sapo", soft_negative=2.0)
    sigmoid = torch.tensor([0.3775407, 0.4750208, 0.5621765, 0.7310586, 0.2689414, 0.8807971])
    weight = torch.tensor([-4.0, -4.0, -4.0, -4.0, 2.0, 2.0])
    torch.testing.assert_close(found, weight * sigmoid)


OLD = torch.full((4,), 0.5).log()
NEW = torch.tensor([0.6, 0.7, 0.4, 0.3]).log()
AWAY = torch.tensor([1.0, 1.0, -1.0, -1.0])
"""Advantages that push each token on in the direction in which it moved."""


def found_of(
    log_prob: Tensor, old: Tensor, advantage: Tensor, mask: Tensor | None = None, **options: Any
) -> tuple[list[float], list[float]]:
    """The losses, and their gradients by log p."""
    log_prob = log_prob.clone().requires_grad_()
    tokens = tokens_of(torch.ones(len(old), 1, dtype=torch.bool) if mask is None else mask)
    found = TokenSurrogate(**options).losses(log_prob, log_prob - old, advantage, tokens).losses
    (gradient,) = torch.autograd.grad(found.sum(), log_prob)
    first, second = ([round(x, 6) + 0.0 for x in y.tolist()] for y in (found, gradient))
    return first, second


@pytest.mark.parametrize(("divergence", "limit"), [("tv", 0.15), ("kl", 0.05)])
def test_golden_dppo(divergence: Any, limit: float) -> None:
    """By hand: D is 0.1, 0.2, 0.1, 0.2, or as KL 0.0204, 0.0872, and the same."""
    options: Any = {"kind": "dppo", "divergence": divergence, "clip_range": limit}
    losses, gradient = found_of(NEW, OLD, AWAY, **options)
    assert losses == gradient == [-1.2, 0.0, 0.8, 0.0]
    losses, gradient = found_of(NEW, OLD, -AWAY, **options)  # those that come back are kept
    assert losses == gradient == [1.2, 1.4, -0.8, -0.6]
    assert found_of(NEW, OLD, AWAY, **options, clip_high=1.0)[0] == [-1.2, -1.4, 0.8, 0.0]


def test_a_capped_ratio_is_a_weight_that_keeps_its_gradient() -> None:
    options: Any = {"kind": "dppo", "clip_range": 0.15, "ratio_cap": 1.1}
    losses, gradient = found_of(NEW, OLD, AWAY, **options)
    assert gradient == [-1.1, 0.0, 0.8, 0.0]
    assert losses == pytest.approx([-1.1 * NEW[0].item(), 0.0, 0.8 * NEW[2].item(), 0.0], abs=1e-6)


def test_golden_cppo() -> None:
    """By hand: w D is 0.1, 0.075, 0.05; b is 0.04; what was used before leaves 0.06 and 0.015."""
    old, new = torch.full((4,), 0.5).log(), torch.full((4,), 0.6).log()
    options: Any = {"clip_range": 0.12, "last_weight": 0.5, "prefix_budget": 0.02}
    losses, _ = found_of(new, old, torch.ones(4), MASK, kind="cppo", **options)
    assert losses == [-1.2, 0.0, 0.0, -1.2]
    losses, _ = found_of(new, old, torch.ones(4), MASK, kind="dppo", **options)
    assert losses == [-1.2] * 4


def test_a_budget_of_two_makes_cppo_dppo() -> None:
    """No divergence of a probability is larger than 1."""
    generator = torch.Generator().manual_seed(0)
    new, old = torch.rand(2, 4, generator=generator).log()
    advantage = torch.randn(4, generator=generator)
    wide: Any = {"clip_range": 0.1, "last_weight": 1.0, "prefix_budget": 2.0}
    assert found_of(new, old, advantage, MASK, kind="cppo", **wide) == found_of(
        new, old, advantage, MASK, kind="dppo", **wide
    )


def test_golden_drpo_and_spo() -> None:
    """By hand: q is 0.5 and r 1.2, 1.4, 0.8, 0.6; |p - q| / c is 2/3 and 4/3, |r - 1| / c twice."""
    losses, gradient = found_of(NEW, OLD, AWAY, kind="drpo", clip_range=0.15)
    assert losses == [-1.133333, -1.133333, 0.866667, 0.866667]
    assert gradient == [-0.4, 0.466667, 0.266667, -0.2]
    losses, gradient = found_of(NEW, OLD, AWAY, kind="spo", clip_range=0.3)
    assert losses == [-1.133333, -1.133333, 0.866667, 0.866667]
    _, gradient = found_of(NEW, OLD, -AWAY, kind="spo", clip_range=0.3)
    assert gradient == pytest.approx([2.0, 3.266667, -1.333333, -1.4], abs=1e-5)


def test_drpo_pushes_a_probability_back_beyond_its_limit_whatever_its_ratio() -> None:
    """0.01 to 0.09 is a ratio of 9; its probability has moved by 0.08 as 0.5 to 0.58's has."""
    old = torch.tensor([0.01, 0.5]).log()
    new = torch.tensor([0.09, 0.58]).log()
    for limit, back in ((0.07, True), (0.09, False)):
        _, gradient = found_of(new, old, torch.ones(2), kind="drpo", clip_range=limit)
        assert [x > 0 for x in gradient] == [back, back]
    _, gradient = found_of(new, old, torch.ones(2), kind="spo", clip_range=0.5)
    assert [x > 0 for x in gradient] == [True, False]


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("dppo", {"clip_range": 0.15}, [False, True, False, True]),
        ("drpo", {"clip_range": 0.15}, [False, True, False, True]),
        ("spo", {"clip_range": 0.3}, [False, True, False, True]),
        ("gmpo", {"clip_range": 0.3, "level": "sequence"}, [False, True, False, True]),
        ("vespo", {"level": "product"}, [False] * 4),
        ("clip", {}, None),
    ],
)
def test_which_tokens_are_outside(kind: Any, options: Any, expected: list[bool] | None) -> None:
    tokens = tokens_of(torch.ones(4, 1, dtype=torch.bool))
    found = TokenSurrogate(kind, **options).losses(NEW, NEW - OLD, AWAY, tokens).outside
    assert (None if found is None else found.tolist()) == expected


def test_golden_vespo() -> None:
    """By hand: at a ratio of 2, 4 e^-3, and of 1/2, where A < 0, e / 8; only log p learns."""
    old = torch.tensor([0.3, 0.8]).log()
    new = torch.tensor([0.6, 0.4]).log()
    losses, gradient = found_of(new, old, torch.tensor([1.0, -1.0]), kind="vespo", level="product")
    assert gradient == [-0.199148, 0.339785]
    expected = [-0.199148 * new[0].item(), 0.339785 * new[1].item()]
    assert losses == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("log_ratio", [-1e3, 1e3, 90.0])
def test_vespo_forgets_responses_far_from_the_policy(log_ratio: float) -> None:
    new, old = torch.zeros(2) - 1, torch.zeros(2) - 1 - log_ratio
    losses, gradient = found_of(new, old, torch.tensor([1.0, -1.0]), kind="vespo", level="product")
    assert losses == gradient == [0.0, 0.0]


def test_golden_gmpo() -> None:
    """By hand: log-ratios 0.5 and -0.5 are (0.4, -0.5) where A > 0, and (0.5, -0.4) elsewhere."""
    mask = torch.ones(2, 2, dtype=torch.bool)
    new = torch.tensor([-1.0, -2.0, -1.0, -2.0])
    old = new - torch.tensor([0.5, -0.5, 0.5, -0.5])
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    options: Any = {"kind": "gmpo", "level": "sequence", "clip_range": 0.4}
    losses, gradient = found_of(new, old, advantage, mask, **options)
    assert losses == [-0.951229, -0.951229, 1.051271, 1.051271]
    assert gradient == [0.0, -0.951229, 1.051271, 0.0]


@pytest.mark.parametrize("kind", get_args(Surrogate))
@pytest.mark.parametrize("level", ["token", "sequence", "sequence_token", "product"])
def test_before_an_update_each_gradient_is_reinforces(kind: Any, level: Any) -> None:
    """With a ratio of 1 that is -A times the weight of a token in its response's ratio."""
    tokens = tokens_of(MASK)
    log_prob = torch.tensor([-1.0, -2.0, -0.5, -3.0], requires_grad=True)
    advantage = torch.tensor([2.0, 2.0, 2.0, -1.0])
    surrogate = TokenSurrogate(kind, level)
    found, log_ratio, _ = surrogate.losses(
        log_prob, log_prob - log_prob.detach(), advantage, tokens
    )
    assert log_ratio.tolist() == [0.0] * 4
    (gradient,) = torch.autograd.grad(found.sum(), log_prob)
    scale = 3.0 if level == "product" and kind not in ("cispo", "vespo") else 1.0
    expected = -advantage * torch.tensor([scale, scale, scale, 1.0])
    torch.testing.assert_close(gradient, expected)


def test_golden_levels() -> None:
    log_ratio = torch.tensor([0.3, -0.6, 0.9, 0.5])
    tokens = tokens_of(MASK)

    def level(name: Any) -> list[float]:
        return [round(x, 6) for x in level_log_ratio(log_ratio, tokens, name).tolist()]

    assert level("token") == [0.3, -0.6, 0.9, 0.5]
    assert level("sequence") == [0.2, 0.2, 0.2, 0.5]
    assert level("sequence_token") == [0.2, 0.2, 0.2, 0.5]
    assert level("product") == [0.6, 0.6, 0.6, 0.5]


def test_gspo_token_has_the_gradient_of_each_token() -> None:
    tokens = tokens_of(MASK)
    log_ratio = torch.tensor([0.3, -0.6, 0.9, 0.5], requires_grad=True)
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    for level, expected in (
        ("sequence", [2.0, 2.0, 2.0, 4.0]),
        ("sequence_token", [1.0, 2.0, 3.0, 4.0]),
    ):
        value = level_log_ratio(log_ratio, tokens, level)  # type: ignore[arg-type]
        (gradient,) = torch.autograd.grad((weight * value).sum(), log_ratio)
        assert gradient.tolist() == expected


@pytest.mark.parametrize(
    ("aggregation", "expected", "masked"),
    [
        ("token", (1 + 2 + 3 + 10) / 4, 10 / 1),
        ("sequence", ((1 + 2 + 3) / 3 + 10) / 2, 10 / 2),
        ("constant", (1 + 2 + 3 + 10) / (2 * 8), 10 / (2 * 8)),
        ("sum", (1 + 2 + 3 + 10) / 2, 10 / 2),
    ],
)
def test_golden_aggregations(aggregation: Any, expected: float, masked: float) -> None:
    """Responses of losses 1, 2, 3 and of 10; masked, the first is left out."""
    loss, lengths = torch.tensor([1.0, 2.0, 3.0, 10.0]), torch.tensor([3, 1])
    for counted, wanted in (([True, True], expected), ([False, True], masked)):
        weights = token_weights(aggregation, lengths, torch.tensor(counted), 8)
        mean = (weights.repeat_interleave(lengths) * loss).mean()
        assert mean.item() == pytest.approx(wanted)


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant", "sum"])
def test_without_a_response_that_counts_the_loss_is_zero(aggregation: Any) -> None:
    weights = token_weights(aggregation, torch.tensor([3, 1]), torch.tensor([False, False]), 8)
    assert weights.tolist() == [0.0, 0.0]


def test_the_share_of_clipped_ratios_knows_both_bounds() -> None:
    ratio = torch.tensor([0.75, 0.85, 1.25, 1.35])
    assert ratio_metrics(ratio, 0.2)["ratio/clip_fraction"].tolist() == [1, 0, 1, 1]
    assert ratio_metrics(ratio, 0.2, 0.3)["ratio/clip_fraction"].tolist() == [1, 0, 0, 1]
