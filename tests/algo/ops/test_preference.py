"""Losses of pairs, and how pairs are formed and kept together."""

import math

import pytest
import torch
from torch import Tensor

from rlfactory.algo.ops.preference import (
    LossType,
    best_and_worst,
    ordered_in_pairs,
    preference_losses,
    preference_metrics,
    whole_pairs,
)
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

LOSSES: list[LossType] = ["sigmoid", "ipo", "hinge", "robust"]


def rollout(groups: list[int], advantage: Tensor | None = None) -> Rollout:
    count = len(groups)
    return Rollout(
        [f"p{g}" for g in groups],
        [{}] * count,
        groups=torch.tensor(groups),
        index=torch.arange(count),
        advantage=advantage,
    )


@pytest.mark.parametrize(
    ("loss_type", "smoothing", "expected"),
    [
        # by hand, m = 2, beta = 0.5: log sigmoid(1) = -0.3132617, log sigmoid(-1) = -1.3132617
        ("sigmoid", 0.0, 0.3132617),
        ("sigmoid", 0.1, 0.9 * 0.3132617 + 0.1 * 1.3132617),
        ("robust", 0.1, (0.9 * 0.3132617 - 0.1 * 1.3132617) / 0.8),
        ("hinge", 0.0, 0.0),
        ("ipo", 0.0, 1.0),
    ],
)
def test_values(loss_type: LossType, smoothing: float, expected: float) -> None:
    found = preference_losses(torch.tensor([2.0]), 0.5, loss_type, smoothing)
    assert found.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("loss_type", ["sigmoid", "robust"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_no_margin_costs_log_2(loss_type: LossType, smoothing: float) -> None:
    found = preference_losses(torch.zeros(1), 0.7, loss_type, smoothing)
    assert found.item() == pytest.approx(math.log(2), abs=1e-7)


@pytest.mark.parametrize("loss_type", LOSSES)
def test_a_larger_margin_costs_less_at_first(loss_type: LossType) -> None:
    margin = torch.zeros(3, requires_grad=True)
    preference_losses(margin, 0.1, loss_type, 0.2).sum().backward()  # type: ignore[no-untyped-call]
    assert (require(margin.grad, "a gradient") < 0).all()


def test_robust_losses_are_unbiased_under_flipped_labels() -> None:
    """The mean over labels that are wrong with the probability e is the loss without errors."""
    margin, e = torch.linspace(-3, 3, 7), 0.2
    right, flipped = (preference_losses(m, 0.9, "robust", e) for m in (margin, -margin))
    clean = preference_losses(margin, 0.9, "sigmoid")
    torch.testing.assert_close((1 - e) * right + e * flipped, clean)


def test_metrics_are_implicit_rewards() -> None:
    found = preference_metrics(torch.tensor([[1.0, 3.0], [2.0, -2.0]]), 0.5)
    assert found["preference/chosen"].tolist() == [0.5, 1.0]
    assert found["preference/rejected"].tolist() == [1.5, -1.0]
    assert found["preference/margin"].tolist() == [-1.0, 2.0]
    assert found["preference/accuracy"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("is_token", [False, True])
def test_the_chosen_one_of_each_pair_comes_first(is_token: bool) -> None:
    advantage = torch.tensor([-1.0, 1.0, 1.0, -1.0])
    given = rollout([7, 2, 7, 2], advantage[:, None].expand(4, 3) if is_token else advantage)
    assert ordered_in_pairs(given).index.tolist() == [1, 3, 2, 0]


def test_one_sample_is_paired_with_itself() -> None:
    assert whole_pairs(rollout([3])).groups.tolist() == [3, 3]
    assert whole_pairs(rollout([3, 3, 4, 4])).groups.tolist() == [3, 3, 4, 4]


def test_best_and_worst_of_each_group_without_those_that_do_not_differ() -> None:
    given = rollout([0, 5, 0, 5, 0, 9, 9, 3])
    scores = torch.tensor([0.3, 1.0, 0.9, -1.0, 0.1, 0.5, 0.5, 8.0])
    found = best_and_worst(given, scores)
    assert found.index.tolist() == [2, 4, 1, 3]
    assert require(found.advantage, "advantages").tolist() == [1, -1, 1, -1]


def test_no_difference_anywhere_leaves_nothing() -> None:
    assert len(best_and_worst(rollout([0, 0, 1, 1]), torch.ones(4))) == 0
    assert len(best_and_worst(rollout([]), torch.ones(0))) == 0
