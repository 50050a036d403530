"""ReFL's drawn step and its loss; test_draft.py has its gradient beside finite differences."""

from typing import Any

import pytest
import torch

from rlfactory.algo.refl import ReFL
from rlfactory.dynamics.schedule import uniform_sigmas

SIGMAS = uniform_sigmas(4, 3.0)


def refl(**options: Any) -> ReFL:
    return ReFL(None, SIGMAS, None, **options)


@pytest.mark.parametrize(
    ("begin", "total", "steps"), [(0.5, 4, {2, 3}), (0.5, 40, {*range(20, 40)}), (1.0, 4, {3})]
)
def test_each_of_the_last_steps_is_drawn(begin: float, total: int, steps: set[int]) -> None:
    algo = refl(begin=begin)
    assert {algo.kept_step(total, seed=0, iteration=i) for i in range(10 * total)} == steps


def test_a_step_is_that_of_its_seed_and_iteration() -> None:
    first, other = ([refl().kept_step(40, seed=s, iteration=i) for i in range(20)] for s in (0, 1))
    assert first == [refl().kept_step(40, seed=0, iteration=i) for i in range(20)]
    assert first != other


def test_a_score_above_the_margin_has_no_gradient() -> None:
    scores = torch.tensor([-1.0, 1.5, 2.5], requires_grad=True)
    losses = refl().losses(scores)
    torch.testing.assert_close(losses, torch.tensor([3e-3, 5e-4, 0.0]))
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    torch.testing.assert_close(gradient, torch.tensor([-1e-3, -1e-3, 0.0]))


def test_without_a_margin_the_loss_is_the_score() -> None:
    losses = refl(margin=None, scale=2.0).losses(torch.tensor([3.0]))
    torch.testing.assert_close(losses, torch.tensor([-6.0]))
