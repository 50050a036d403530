from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.grpo import GRPO
from rlfactory.algo.grpo_guard import GRPOGuard, guarded_log_ratio
from rlfactory.batch import Batch
from rlfactory.dynamics.base import gaussian_log_prob
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Condition, Rollout, Transitions
from rlfactory.utils.pytree import require

# Provenance: diffusion.md appendix A (inputs) and 1.7: GRPO-Guard's own lines, noise 0.7, the
# step from .75 to 2/3; `batch` is what the published code does by a slip, `sample` the paper's.
X = torch.tensor([[0.5, -1, 0.25, 2], [1.5, 0.1, -0.3, -0.7]]).view(2, 1, 2, 2)
V = torch.tensor([[0.2, 0.4, -0.6, 1], [-1, 0.3, 0.5, 0.05]]).view(2, 1, 2, 2)
NEXT = torch.tensor([[0.45, -1.05, 0.40, 1.80], [1.60, 0.05, -0.40, -0.70]]).view(2, 1, 2, 2)
V_OLD = V + torch.tensor([[0.01, -0.02, 0, 0.03], [0, 0.02, -0.01, 0.01]]).view(2, 1, 2, 2)
PLAIN = [1.0008482070, 1.0000049582]
GUARDED: dict[Any, list[float]] = {
    "batch": [1.0003006361, 1.0000055797],
    "sample": [1.0003021743, 1.0000040420],
}
T, T_NEXT = (uniform_sigmas(10, 3.0)[i].expand(2) for i in (5, 6))
SDE = FlowSDE(noise_level=0.7)


class Constant:
    """A network that predicts the same at once."""

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        return V


def golden_batch() -> Batch:
    was = SDE.step(X, V_OLD, T, T_NEXT, next=NEXT)
    return Batch(
        x=X,
        t=T,
        x0=X,
        sample=torch.arange(2),
        condition=Condition({}),
        advantage=torch.tensor([2.0, -1.0]),
        replayed=Transitions(T, T_NEXT, X, NEXT, require(was.log_prob, "a likelihood"), was.mean),
    )


def guard(clip_range: float = 1e-3, **options: Any) -> GRPOGuard:
    return GRPOGuard(SDE, GroupAdvantage(), clip_range=clip_range, **options)


def test_golden_plain_ratio() -> None:
    model: Any = Constant()
    loss = GRPO(SDE, GroupAdvantage()).loss(model, golden_batch())
    # float32: the likelihoods are known to 1e-7
    torch.testing.assert_close(
        loss.metrics["ratio/mean"] - 1, torch.tensor(PLAIN) - 1, rtol=0, atol=3e-7
    )


@pytest.mark.parametrize("bias", GUARDED)
def test_golden_guarded_ratio(bias: Any) -> None:
    model: Any = Constant()
    loss = guard(bias=bias).loss(model, golden_batch())
    expected = torch.tensor(GUARDED[bias]).double()
    torch.testing.assert_close(loss.metrics["ratio/mean"], expected, rtol=0, atol=2e-7)


@pytest.mark.parametrize("bias", GUARDED)
def test_golden_guarded_ratio_in_double(bias: Any) -> None:
    """The same without float32's rounding, from `log r = mean(...)` by hand."""
    was, now = (SDE.step(X, v, T, T_NEXT, next=NEXT) for v in (V_OLD, V))
    std = torch.full((2, 1, 1, 1), 0.35).double()
    means = now.mean.double(), was.mean.double()
    new, old = (gaussian_log_prob(NEXT.double(), mean, std) for mean in means)
    moved = (means[0] - means[1]).pow(2).flatten(1).mean(1) / (2 * 0.35**2)
    torch.testing.assert_close((new - old).exp(), torch.tensor(PLAIN).double(), rtol=0, atol=1e-7)
    ratio = guarded_log_ratio(NEXT.double(), *means, std, bias).exp()
    by_hand = (new - old + (moved if bias == "sample" else moved.mean())) * 0.35
    torch.testing.assert_close(ratio.log(), by_hand, rtol=0, atol=1e-10)
    torch.testing.assert_close(ratio, torch.tensor(GUARDED[bias]).double(), rtol=0, atol=1e-7)


def test_golden_factor_of_the_loss_is_twelve() -> None:
    model: Any = Constant()
    by_time, plain = (guard(per_time=p).loss(model, golden_batch()) for p in (True, False))
    factor = by_time.metrics["loss/policy"] / plain.metrics["loss/policy"]
    torch.testing.assert_close(factor, torch.full((2,), 12.0).double(), rtol=1e-5, atol=0)
    assert by_time.value.item() == pytest.approx(12 * plain.value.item(), rel=1e-5)


def drawn(moved: float, std: float, count: int = 20_000) -> tuple[Tensor, ...]:
    """Plain log-ratio of steps that the old policy took (D = 4), the steps, means, deviation."""
    generator = torch.Generator().manual_seed(0)
    mean_old = torch.randn(count, 4, generator=generator).double()
    mean = mean_old + moved
    deviation = torch.full((count, 1), std).double()
    noise = torch.randn(count, 4, generator=generator).double()
    x = mean_old + deviation * noise
    change = gaussian_log_prob(x, mean, deviation) - gaussian_log_prob(x, mean_old, deviation)
    return change, x, mean, mean_old, deviation


def test_under_the_old_policy_the_guarded_ratio_is_centred_where_the_plain_one_is_not() -> None:
    change, *step = drawn(0.1, 0.35)
    guarded = guarded_log_ratio(*step)
    error = change.std() / len(change) ** 0.5
    bias = 0.1**2 / (2 * 0.35**2)
    assert abs(change.mean() + bias) < 4 * error < bias / 4
    assert abs(guarded.mean()) < 4 * error * 0.35


def test_the_guarded_clip_works_both_ways() -> None:
    change, *step = drawn(0.2, 0.1)
    clip = 0.1

    def outside(log_ratio: Tensor) -> tuple[float, float]:
        ratio = log_ratio.exp()
        return float((ratio > 1 + clip).double().mean()), float((ratio < 1 - clip).double().mean())

    above, below = outside(change)
    assert below > 10 * above
    above, below = outside(guarded_log_ratio(*step))
    assert above == pytest.approx(below, rel=0.15)
    assert above > 0.05


def test_the_spread_of_a_guarded_ratio_is_the_same_at_every_noise_level() -> None:
    spreads = []
    for std in (0.05, 0.35, 1.0):
        _, *step = drawn(0.1, std)
        spreads.append(float(guarded_log_ratio(*step).std()))
    # moved / sqrt(D)
    assert spreads == pytest.approx([0.05] * 3, rel=0.02)


def test_each_sample_has_its_own_bias() -> None:
    # halfway between the means both policies find a step as likely: what is left is the bias
    mean, mean_old = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.zeros(2, 2)
    step = mean / 2, mean, mean_old, torch.full((2, 1), 0.5)
    assert guarded_log_ratio(*step).tolist() == [0.0, 1.0]  # 1 / (2 0.25) 0.5
    assert guarded_log_ratio(*step, "batch").tolist() == [0.5, 0.5]


@pytest.mark.parametrize("bias", GUARDED)
def test_where_the_means_agree_the_ratio_is_one(bias: Any) -> None:
    x, mean, std = X, V, torch.full((2, 1, 1, 1), 0.35)
    assert torch.equal(guarded_log_ratio(x, mean, mean.clone(), std, bias).exp(), torch.ones(2))


def test_rounding_is_far_below_the_clip_range() -> None:
    """Networks that are the same to float32's precision have a ratio that is 1 for a clip of 2e-6.

    The plain ratio, a difference of likelihoods, is not known as well as that.
    """
    generator = torch.Generator().manual_seed(0)
    mean_old, noise = torch.randn(2, 64, 16, 8, 8, generator=generator)
    std = torch.full((64, 1, 1, 1), 0.5)
    x = mean_old + std * noise
    mean = mean_old * (1 + 3e-7 * torch.randn(mean_old.shape, generator=generator))
    guarded = guarded_log_ratio(x, mean, mean_old, std)
    assert 0 < guarded.abs().max() < 4e-8
    plain = gaussian_log_prob(x, mean, std) - gaussian_log_prob(x, mean_old, std)
    assert plain.abs().max() > 1e-7


ADVANTAGE = [1.5, -0.5, 0.25]
MakeModel = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


def make_batch(model: ImageModel, roll: Roll) -> Batch:
    items = guard().training_items(roll(model, ADVANTAGE, SDE), model, seed=0, iteration=0)
    (batch,) = items.split(100)
    return batch


def test_before_the_first_update_the_ratio_is_exactly_one_and_reinforces(
    linear: MakeModel, roll: Roll
) -> None:
    model = linear()
    batch = make_batch(model, roll)
    loss = guard().loss(model, batch)
    assert loss.metrics["ratio/max_dev"].max() == 0
    loss.value.backward()
    found = [p.grad.clone() for p in model.weights.parameters.values() if p.grad is not None]
    taken = batch.require_replayed()
    prediction = model.predict(batch.x, batch.t, batch.condition)
    step = SDE.step(batch.x, prediction, batch.t, taken.t_next, next=taken.next)
    weight = step.std.flatten() / (batch.t - taken.t_next)
    objective = -(batch.advantage * weight * require(step.log_prob, "likelihood")).mean()
    expected = torch.autograd.grad(objective, list(model.weights.parameters.values()))
    torch.testing.assert_close(found, list(expected))
    assert all(gradient != 0 for gradient in found)


def test_far_from_the_old_policy_the_clip_stops_the_gradient(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    batch = make_batch(model, roll)
    for advantage, shift in ((1.0, -0.5), (-1.0, 0.5)):
        # the old policy's steps were centred so far off that the new one's are likelier (or less)
        taken = batch.require_replayed()
        taken = replace(taken, mean=taken.mean + shift * (taken.next - taken.mean))
        pushed = replace(batch, replayed=taken, advantage=torch.full((6,), advantage))
        loss = guard().loss(model, pushed)
        grads = torch.autograd.grad(loss.value, list(model.weights.parameters.values()))
        assert all(gradient == 0 for gradient in grads)
        assert loss.metrics["ratio/clip_fraction"].min() == 1


def test_what_it_asks_of_a_rollout(linear: MakeModel, roll: Roll) -> None:
    assert GRPOGuard.stores_step_mean
    assert GRPOGuard.required_dynamics == FlowSDE.step_form
    assert guard(clip_range=2e-6).ratio_tolerance == pytest.approx(2e-7)
    model = linear()
    batch = make_batch(model, roll)
    assert require(batch.require_replayed().mean, "means").shape == batch.x.shape
    with pytest.raises(ValueError, match="means of the sampling policy"):
        guard().loss(model, replace(batch, replayed=replace(batch.require_replayed(), mean=None)))
