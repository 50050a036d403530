from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.ddpo_sf import DDPOScoreFunction
from rlfactory.algo.grpo import GRPO
from rlfactory.batch import Batch
from rlfactory.dynamics.ddim import DDIM
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

ADVANTAGE = [1.5, -0.5, 0.25]
SDE = FlowSDE(noise_level=0.7)

MakeModel = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


@pytest.fixture(params=["flow_sde", "ddim"])
def setting(
    request: pytest.FixtureRequest, linear: MakeModel, noisy: MakeModel, roll: Roll
) -> tuple[ImageModel, Any, Batch]:
    """A model, dynamics of its process, and a batch of steps."""
    model = (linear if request.param == "flow_sde" else noisy)()
    process: Any = model.forward_process
    dynamics = SDE if request.param == "flow_sde" else DDIM(process)
    algo = DDPOScoreFunction(dynamics, GroupAdvantage())
    items = algo.training_items(roll(model, ADVANTAGE, dynamics), model, seed=0, iteration=0)
    return model, dynamics, next(items.split(100))


def gradients(value: torch.Tensor, model: ImageModel) -> list[torch.Tensor]:
    return list(torch.autograd.grad(value, list(model.weights.parameters.values())))


def test_the_loss_is_minus_the_advantage_times_the_log_likelihood(
    setting: tuple[ImageModel, Any, Batch],
) -> None:
    model, dynamics, batch = setting
    loss = DDPOScoreFunction(dynamics, GroupAdvantage()).loss(model, batch)
    taken = batch.require_replayed()
    expected = -batch.advantage * taken.log_prob
    torch.testing.assert_close(loss.metrics["loss/policy"], expected)
    assert loss.value.item() == pytest.approx(expected.mean().item(), rel=1e-6)
    assert torch.equal(loss.metrics["ratio/mean"], torch.ones(6))
    assert torch.equal(loss.outputs.require_step().next, taken.next)


def test_its_gradient_is_that_of_the_importance_sampled_loss_at_ratio_one(
    setting: tuple[ImageModel, Any, Batch],
) -> None:
    model, dynamics, batch = setting
    plain = DDPOScoreFunction(dynamics, GroupAdvantage()).loss(model, batch)
    ratio = GRPO(dynamics, GroupAdvantage()).loss(model, batch)
    assert torch.equal(ratio.metrics["ratio/mean"], torch.ones(6)), "a replay is exact"
    found = gradients(plain.value, model)
    torch.testing.assert_close(found, gradients(ratio.value, model))
    assert all(gradient != 0 for gradient in found)


def test_a_replay_that_differs_is_seen(setting: tuple[ImageModel, Any, Batch]) -> None:
    model, dynamics, batch = setting
    taken = replace(batch.require_replayed(), log_prob=batch.require_replayed().log_prob - 0.1)
    loss = DDPOScoreFunction(dynamics, GroupAdvantage()).loss(model, replace(batch, replayed=taken))
    assert loss.metrics["ratio/max_dev"].min() > require(DDPOScoreFunction.ratio_tolerance, "one")
    assert loss.metrics["ratio/clip_fraction"].max() == 0


def test_it_learns_from_the_policy_as_it_is() -> None:
    assert DDPOScoreFunction.on_policy
    assert not GRPO.on_policy
