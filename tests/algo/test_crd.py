"""CRD: Flow-Factory's loss, centering within groups, weights of the penalty, the plan."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.crd import CRD
from rlfactory.algo.ops.groups import GroupBatch
from rlfactory.algo.times import UniformTimes
from rlfactory.batch import Outputs
from rlfactory.config.overrides import plan_from_words
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD, REFERENCE
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.kl_v import KLVelocity
from rlfactory.rollout import Rollout

Make = Callable[..., ImageModel]
Roll = Callable[..., Rollout]
ADVANTAGES = torch.tensor([2.0, -1.0, 7.0, 0.5])


def algorithm(**options: Any) -> CRD:
    return CRD(GroupAdvantage(), UniformTimes(count=2), uniform_sigmas(6, 3.0), **options)


def published(
    v: Tensor, v_old: Tensor, target: Tensor, advantage: Tensor, options: dict[str, Any]
) -> Tensor:
    """The lines of Flow-Factory's trainers/crd.py, of one group."""
    beta, temperature = options.get("beta", 1.0), options.get("temperature", torch.inf)

    def part(pred: Tensor) -> Tensor:
        weight = torch.ones(())
        if options.get("adaptive", True):
            size = torch.abs(pred.double() - target.double()).detach()
            weight = size.mean(dim=(1, 2, 3), keepdim=True).clip(min=1e-5)
        return (pred.double() - target) ** 2 / weight

    r_theta = -(part(v) - part(v_old)).mean(dim=(1, 2, 3))
    adv = torch.clamp((torch.clamp(advantage, -5.0, 5.0) / 5.0) / 2.0 + 0.5, 0, 1).double()
    total = torch.zeros(())
    for sign in (1, -1):
        p = torch.softmax(sign * adv / temperature, dim=0)
        centred = adv - (adv * p).sum()
        centred_theta = r_theta - (r_theta * p).sum().detach()
        if options.get("kind") == "bce":
            loss = binary_cross_entropy_with_logits(beta * centred_theta, torch.sigmoid(centred))
        else:
            loss = ((beta * centred_theta - centred) ** 2).mean()
        total = total + 0.5 * loss
    return total * 5.0 / beta


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta": 0.5},
        {"kind": "bce"},
        {"adaptive": False},
        {"temperature": 0.3, "kind": "bce"},
        {"temperature": 1e-3},
    ],
    ids=str,
)
def test_the_loss_and_its_gradient_are_flow_factorys(
    linear: Make, roll: Roll, options: dict[str, Any]
) -> None:
    model = linear()
    model.weights.add(OLD)
    parameters = [*model.weights.parameters.values()]
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(0.1)
    algo = algorithm(**options)
    rollout = replace(roll(model, ADVANTAGES.tolist()), groups=torch.zeros(4, dtype=torch.int64))
    batches = [*algo.training_items(rollout, model, seed=0, iteration=0).split(4)]
    assert [len(batch) for batch in batches] == [4, 4]
    for batch in batches:
        with torch.no_grad(), model.weights(OLD):
            v_old = model.predict(batch.x, batch.t, batch.condition)
        v = model.predict(batch.x, batch.t, batch.condition)
        expected = published(v, v_old, batch.require_eps() - batch.x0, batch.advantage, options)
        found = algo.loss(model, batch)
        torch.testing.assert_close(found.value, expected.to(found.value), rtol=1e-5, atol=1e-8)
        slopes = [torch.autograd.grad(x, parameters) for x in (found.value, expected)]
        torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-6)


def test_the_golden_loss(golden: Any) -> None:
    """Provenance: the published lines in plain floats, on diffusion.md's inputs as a group of two.

    l = [0.0175, 0.025] and l_old = [0.01625, 0.03625], so q = [-0.00125, 0.01125], centred -0.00625
    and 0.00625; r = [0.7, 0.4] is 0.15 and -0.15; 5 mean (q - r)^2 = 5 0.15625^2.
    """
    base, model = golden.batch(), golden.model()
    columns = {column.name: getattr(base, column.name) for column in fields(base)}
    batch = GroupBatch(**columns, cell=torch.zeros(2, dtype=torch.int64))
    loss = algorithm(adaptive=False).loss(model, batch)
    assert loss.value.item() == pytest.approx(5 * 0.15625**2, rel=1e-5)
    found = loss.metrics["preference/implicit"].tolist()
    assert found == pytest.approx([-0.00125, 0.01125], rel=1e-4)


def test_groups_are_centred_each_by_itself(linear: Make, roll: Roll) -> None:
    model = linear()
    model.weights.add(OLD)
    algo = algorithm()
    two = replace(roll(model, [1.0, -1.0, 1.0, -1.0]), groups=torch.tensor([0, 0, 1, 1]))
    (batch,) = algo.training_items(two, model, seed=0, iteration=0).split(100)
    # at the old policy q is 0, and each group's rewards are 0.1 from their mean
    assert algo.loss(model, batch).value.item() == pytest.approx(5 * 0.1**2, rel=1e-5)
    shifted = replace(two, advantage=torch.tensor([1.0, -1.0, 4.0, 2.0]))
    (batch,) = algo.training_items(shifted, model, seed=0, iteration=0).split(100)
    assert algo.loss(model, batch).value.item() == pytest.approx(5 * 0.1**2, rel=1e-5)


def test_equal_scores_move_nothing_at_the_old_policy(linear: Make, roll: Roll) -> None:
    model = linear()
    model.weights.add(OLD)
    algo = algorithm()
    rollout = replace(roll(model, [0.5, 0.5]), groups=torch.zeros(2, dtype=torch.int64))
    (batch,) = algo.training_items(rollout, model, seed=0, iteration=0).split(100)
    slopes = torch.autograd.grad(
        algo.loss(model, batch).value, [*model.weights.parameters.values()]
    )
    assert not any(slope.any() for slope in slopes)


def test_well_rewarded_samples_are_kept_near_the_reference(linear: Make, roll: Roll) -> None:
    model = linear()
    model.weights.add(REFERENCE)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter.add_(0.1)
    scores = torch.tensor([0.0, 1.0])
    rollout = replace(
        roll(model, [0.0, 0.0]), groups=torch.zeros(2, dtype=torch.int64), rewards={"main": scores}
    )
    algo = algorithm(least=0.01)
    made = algo.compute_advantages(rollout, "main")
    assert made.penalty_weight is not None
    expected = 0.01 + 0.99 * (torch.tensor([-1.0, 1.0]) / 10 + 0.5)
    torch.testing.assert_close(made.penalty_weight, expected, rtol=1e-3, atol=0)
    assert (
        algorithm(adaptive_penalty=False).compute_advantages(rollout, "main").penalty_weight is None
    )
    (batch,) = algo.training_items(made, model, seed=0, iteration=0).split(100)
    outputs = Outputs(model.predict(batch.x, batch.t, batch.condition))
    penalty = KLVelocity(coefficient=Fixed(value=1.0))
    found, _ = penalty.penalty(model, batch, outputs)
    plain = penalty.divergence(model, batch, outputs)
    torch.testing.assert_close(found, (made.penalty_weight[batch.sample] * plain).mean())


def test_the_plan_has_the_published_clocks() -> None:
    plan = plan_from_words("algo=crd")
    assert "8 to compare" in plan.table()
    assert (plan.config["ema"]["schedule"], plan.config["old"]["initial"]) == ("nft_2", 0.25)
