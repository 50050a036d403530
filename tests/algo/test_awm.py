from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.awm import AWM, Weighting, pseudo_log_prob
from rlfactory.algo.times import UniformTimes
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD
from rlfactory.rollout import Rollout

SIGMAS = uniform_sigmas(6, 3.0)
LOSS, T = torch.tensor([0.0175, 0.025]).double(), torch.tensor([0.6, 0.3]).double()
# Provenance: diffusion.md 1.11, AWM's own lines run on the inputs of appendix A.
GOLDEN: dict[Any, list[float]] = {
    "uniform": [-0.0175, -0.025],
    "t": [-0.0105, -0.0075],
    "t2": [-0.0063, -0.00225],
    "huber": [-0.07936654, -0.04743116],
    "ghuber": [-0.86532312, -0.47336770],
}


def awm(count: int = 4, **options: Any) -> AWM:
    return AWM(GroupAdvantage(), UniformTimes(count=count), SIGMAS, **options)


def gradient(value: Tensor, model: Any) -> Tensor:
    return torch.autograd.grad(value, model.v, retain_graph=True)[0]


def test_every_weighting_has_a_golden_number() -> None:
    assert set(GOLDEN) == set(get_args(Weighting))


@pytest.mark.parametrize("weighting", GOLDEN)
def test_golden_pseudo_likelihoods(weighting: Any) -> None:
    found = pseudo_log_prob(LOSS, T, weighting)
    expected = torch.tensor(GOLDEN[weighting]).double()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("weighting", GOLDEN)
def test_golden_scores_of_a_network(weighting: Any, golden: Any) -> None:
    scores = awm(weighting=weighting).log_likelihoods(golden.model(), golden.batch())
    assert scores.dtype == torch.float64
    expected = torch.tensor(GOLDEN[weighting]).double()
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-8)


def test_the_power_is_that_of_the_generalised_huber() -> None:
    # at a half, 2 t (sqrt(l + tiny) - sqrt(tiny)): twice huber
    found = pseudo_log_prob(LOSS, T, "ghuber", 0.5)
    torch.testing.assert_close(found, 2 * pseudo_log_prob(LOSS, T, "huber"))


@pytest.mark.parametrize("weighting", GOLDEN)
def test_a_perfect_prediction_is_the_likeliest_and_its_slope_finite(
    weighting: Any, golden: Any
) -> None:
    model = golden.model(golden.eps - golden.x0)
    scores = awm(weighting=weighting).log_likelihoods(model, golden.batch())
    torch.testing.assert_close(scores, torch.zeros(2).double(), rtol=0, atol=1e-9)
    assert torch.isfinite(gradient(scores.sum(), model)).all()


@pytest.mark.parametrize("weighting", GOLDEN)
@pytest.mark.parametrize("ratio", ["exp_first", "sum_first"])
def test_where_learning_is_on_policy_the_ratio_is_one_and_the_gradient_the_weighted_losss(
    weighting: Any, ratio: Any, golden: Any
) -> None:
    model, algo = golden.model(), awm(weighting=weighting, ratio=ratio)
    loss = algo.loss(model, golden.batch())
    assert loss.metrics["ratio/max_dev"].max() == 0
    assert loss.value.item() == pytest.approx(-0.5)  # minus the mean advantage
    scores = algo.log_likelihoods(model, golden.batch())
    expected = gradient(-(golden.advantage * scores).mean(), model)
    torch.testing.assert_close(gradient(loss.value, model), expected)
    assert (expected != 0).all()


def test_a_sample_that_nothing_was_noted_of_is_on_policy_beside_one_that_has_moved(
    golden: Any,
) -> None:
    old = torch.tensor([torch.nan, GOLDEN["ghuber"][1] - 0.25]).double()
    loss = awm().loss(golden.model(), golden.batch(old_log_prob=old))
    ratio = loss.metrics["ratio/mean"]
    torch.testing.assert_close(ratio, torch.tensor([0.0, 0.25]).double().exp(), rtol=1e-5, atol=0)
    assert ratio[0] == 1
    torch.testing.assert_close(loss.outputs.log_ratio.exp(), ratio)


def test_the_ratio_is_of_the_likelihoods_of_two_policies(golden: Any) -> None:
    model, algo = golden.model(), awm(weighting="t")
    with model.weights(OLD), torch.no_grad():
        old = algo.log_likelihoods(model, golden.batch())
    loss = algo.loss(model, golden.batch(old_log_prob=old))
    target = golden.eps - golden.x0
    was, now = ((v - target).pow(2).flatten(1).mean(1) for v in (golden.v_old, golden.v))
    expected = (golden.t * (was - now)).exp().double()
    torch.testing.assert_close(loss.metrics["ratio/mean"], expected, rtol=1e-6, atol=0)


def test_sum_first_is_the_ratio_of_the_mean_over_a_samples_times(golden: Any) -> None:
    # the two rows as two times of one sample
    old = torch.tensor([-0.1, -0.4]).double()
    batch = golden.batch(old_log_prob=old, items_per_sample=2, advantage=torch.tensor([2.0, 2.0]))
    scores = awm(weighting="huber").log_likelihoods(golden.model(), batch)
    first = awm(weighting="huber").loss(golden.model(), batch)
    summed = awm(weighting="huber", ratio="sum_first").loss(golden.model(), batch)
    torch.testing.assert_close(first.metrics["ratio/mean"], (scores - old).exp().detach())
    one = (scores - old).mean().exp().detach()
    torch.testing.assert_close(summed.metrics["ratio/mean"], one[None])
    assert summed.value.item() == pytest.approx(-2 * one.item())
    assert first.value.item() == pytest.approx(-2 * (scores - old).exp().mean().item())


@pytest.mark.parametrize(("advantage", "shift"), [(1.0, -3.0), (-1.0, 3.0)])
def test_far_from_the_old_policy_the_clip_stops_the_gradient_if_there_is_one(
    advantage: float, shift: float, golden: Any
) -> None:
    model = golden.model()
    scores = awm().log_likelihoods(model, golden.batch()).detach()
    batch = golden.batch(old_log_prob=scores + shift, advantage=torch.full((2,), advantage))
    clipped = awm(clip_range=0.9).loss(model, batch)
    assert clipped.metrics["ratio/clip_fraction"].min() == 1
    assert not gradient(clipped.value, model).any()
    free = awm(clip_range=None).loss(model, batch)
    assert free.metrics["ratio/clip_fraction"].max() == 0
    assert free.value.item() == pytest.approx(-advantage * torch.tensor(-shift).exp().item())
    assert (gradient(free.value, model) != 0).all()


def test_each_sample_has_its_own_noise(
    linear: Callable[..., ImageModel], roll: Callable[..., Rollout]
) -> None:
    model = linear()
    rollout = roll(model, [1.0, -1.0, 0.5])
    items = awm(count=2).training_items(rollout, model, seed=0, iteration=3)
    assert items.t.shape == (3, 2)
    assert len(items.eps.flatten().unique()) == items.eps.numel()
    again = awm(count=2).training_items(replace(rollout), model, seed=0, iteration=3)
    assert torch.equal(items.eps, again.eps)
