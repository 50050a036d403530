"""DGPO: the published loss and its gradient, groups with common noise and times, the plan."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.dgpo import DGPO
from rlfactory.algo.ops.groups import GroupBatch, GroupItems
from rlfactory.algo.times import UniformTimes
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD, REFERENCE
from rlfactory.rollout import Rollout

SIGMAS = uniform_sigmas(6, 3.0)
ADVANTAGES = torch.tensor([1.0, -0.5, -0.5, 2.0, -3.0, 1.0])
Make = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


def algorithm(**options: Any) -> DGPO:
    return DGPO(GroupAdvantage(), UniformTimes(count=3), SIGMAS, **options)


def items(algo: DGPO, model: ImageModel, roll: Roll) -> GroupItems:
    """Two groups of three, that of the last sample first."""
    rollout = replace(
        roll(model, [0.0] * 6),
        groups=torch.tensor([1, 0, 1, 0, 1, 0]),
        advantage=ADVANTAGES[[3, 0, 4, 1, 5, 2]],
    )
    samples = algo.normalise_update(rollout)
    made = algo.training_items(samples, model, seed=0, iteration=0)
    assert isinstance(made, GroupItems)
    return made


@pytest.fixture(params=["velocity", "noise"])
def model(request: pytest.FixtureRequest, linear: Make, noisy: Make) -> ImageModel:
    made = linear() if request.param == "velocity" else noisy()
    made.weights.add(REFERENCE)
    move(made, 0.02)
    made.weights.add(OLD)
    move(made, 0.03)
    return made


def move(model: ImageModel, by: float) -> None:
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter.add_(by)


def gradient(model: ImageModel, value: Tensor) -> list[Tensor]:
    return [*torch.autograd.grad(value, [*model.weights.parameters.values()])]


def published(model: ImageModel, batch: Any, beta: float, clip: float, reference: str) -> Tensor:
    """The lines of Luo-Yihong/DGPO, scripts/train_sd3_dgpo.py, for one group at a time."""
    target = model.forward_process.target(batch.x0, batch.require_eps(), batch.t)

    def dsm(weights: str | None) -> Tensor:
        if weights is None:
            v = model.predict(batch.x, batch.t, batch.condition)
        else:
            with torch.no_grad(), model.weights(weights):
                v = model.predict(batch.x, batch.t, batch.condition)
        return (target - v).square().reshape(len(v), -1).mean(dim=1)

    loss, old, ref = dsm(None), dsm(OLD), dsm(reference)
    ratio = torch.exp(-loss + old)
    beyond = torch.where(batch.advantage > 0, ratio > 1 + clip, ratio < 1 - clip)
    loss = torch.where(beyond, loss.detach(), loss)
    terms = batch.advantage * beta * (loss.detach() - ref) / 3
    sums = torch.zeros(6).scatter_add_(0, batch.cell, terms)
    weights = torch.sigmoid(sums)[batch.cell]
    return (weights.detach() * batch.advantage * loss).mean()


@pytest.mark.parametrize("clip", [1e-4, 1e9])
@pytest.mark.parametrize("reference", [REFERENCE, OLD])
def test_the_gradient_is_the_published_codes(
    model: ImageModel, roll: Roll, clip: float, reference: str
) -> None:
    algo = algorithm(beta=40.0, clip_range=clip, reference=reference)
    (batch,) = items(algo, model, roll).split(100)
    loss = algo.loss(model, batch)
    masked = loss.metrics["ratio/clip_fraction"]
    assert masked.any() == (clip < 1)
    assert not masked.all()
    assert set(loss.outputs.by_weight_set) == {reference, OLD}
    expected = gradient(model, published(model, batch, 40.0, clip, reference))
    for found, theirs in zip(gradient(model, loss.value), expected, strict=True):
        torch.testing.assert_close(found, theirs, rtol=1e-4, atol=3e-7)  # sums of terms of 0.5


def test_a_group_has_one_noise_and_one_time(model: ImageModel, roll: Roll) -> None:
    (batch,) = items(algorithm(), model, roll).split(100)
    cell = batch.cell  # type: ignore[attr-defined]
    assert cell.tolist() == [n for n in range(6) for _ in range(3)]
    for n in range(6):
        assert len(batch.require_eps()[cell == n].unique(dim=0)) == 1
        assert len(batch.t[cell == n].unique()) == 1
    assert len(batch.t.unique()) == 6
    assert batch.advantage.tolist()[:3] == [1.0, -0.5, -0.5]


@pytest.mark.parametrize("size", [1, 3, 5, 9, 18])
def test_micro_batches_add_up(model: ImageModel, roll: Roll, size: int) -> None:
    algo = algorithm()
    made = items(algo, model, roll)
    (whole,) = made.split(100)
    total = sum(
        algo.loss(model, part).value * part.weight / made.weight for part in made.split(size)
    )
    torch.testing.assert_close(total, algo.loss(model, whole).value, rtol=1e-9, atol=0)


def test_a_step_raises_the_margin_of_the_groups(model: ImageModel, roll: Roll) -> None:
    algo = algorithm(clip_range=1e9)
    (batch,) = items(algo, model, roll).split(100)
    before = algo.loss(model, batch)
    slopes = gradient(model, before.value)
    with torch.no_grad():
        for parameter, slope in zip(model.weights.parameters.values(), slopes, strict=True):
            parameter.sub_(0.01 * slope)
    after = algo.loss(model, batch)
    assert after.value < before.value
    assert after.metrics["preference/margin"].mean() > before.metrics["preference/margin"].mean()


def test_equal_scores_and_padding_have_no_gradient(model: ImageModel, roll: Roll) -> None:
    algo = algorithm()
    made = algo.training_items(roll(model, [0.0]), model, seed=0, iteration=0)
    found = gradient(model, algo.loss(model, next(made.split(100))).value)
    assert not any(slope.any() for slope in found)


def test_the_golden_loss(golden: Any) -> None:
    """Provenance: the published lines in plain floats, on diffusion.md's inputs as a group of two.

    l = [0.0175, 0.025], l_old = [0.01625, 0.03625]; m = (2 * 0.00125 + 0.01125) / 2 = 0.006875, and
    sigmoid(2 m) = 0.5034374.
    """
    base, model = golden.batch(), golden.model()
    columns = {column.name: getattr(base, column.name) for column in fields(base)}
    batch = GroupBatch(**columns, cell=torch.zeros(2, dtype=torch.int64))
    algo = algorithm(beta=2.0, clip_range=0.01, reference=OLD)
    loss = algo.loss(model, batch)
    assert loss.value.item() == pytest.approx(0.3500229066, rel=1e-6)
    # the second sample's ratio is 1.01131, on the side that its advantage does not clip
    assert loss.metrics["ratio/mean"].tolist() == pytest.approx([0.9987508, 1.0113135], rel=1e-6)
    assert loss.metrics["ratio/clip_fraction"].tolist() == [0, 0]
    loss.value.backward()  # type: ignore[no-untyped-call]
    slope = golden.v - (golden.eps - golden.x0)
    expected = 0.5034374 * golden.advantage.view(2, 1, 1, 1) * slope / 4
    torch.testing.assert_close(model.v.grad, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("words", "fix"), [(["shares=random"], "shares=groups"), (["group_size=1"], "group_size=4")]
)
def test_bad_plans(words: list[str], fix: str) -> None:
    with pytest.raises(PlanError, match=fix):
        plan_from_words("algo=dgpo", *words)


def test_the_plan_counts_the_passes_of_both_weight_sets_or_of_one() -> None:
    small = ["micro_batch=2", "group_size=5", "prompts_per_iteration=4"]
    table = plan_from_words("algo=dgpo", *small).table()
    assert "8 to compare" in table
    assert "40 items an update / 5 = 8" in table
    assert "4 to compare" in plan_from_words("algo=dgpo", "algo.reference=old").table()
