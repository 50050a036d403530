from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
import torch

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.grpo import GRPO, Weighting, step_weight
from rlfactory.batch import Batch
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout

ADVANTAGE = [1.5, -0.5, 0.25]

MakeModel = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


def make_algo(clip_range: float = 1e-3) -> GRPO:
    return GRPO(FlowSDE(noise_level=0.7), GroupAdvantage(), clip_range=clip_range)


def make_batch(model: ImageModel, roll: Roll) -> Batch:
    (batch,) = (
        make_algo().training_items(roll(model, ADVANTAGE), model, seed=0, iteration=0).split(100)
    )
    return batch


def test_every_kept_transition_is_one_item(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = roll(model, ADVANTAGE)
    (batch,) = make_algo().training_items(rollout, model, seed=0, iteration=0).split(100)
    kept, taken = rollout.transitions, batch.require_replayed()
    assert kept is not None
    assert len(batch) == 6
    assert batch.sample.tolist() == [0, 0, 1, 1, 2, 2]
    assert batch.advantage.tolist() == [1.5, 1.5, -0.5, -0.5, 0.25, 0.25]
    for i in range(6):
        sample, step = divmod(i, 2)
        assert torch.equal(batch.x[i], kept.x[sample, step])
        assert torch.equal(taken.next[i], kept.next[sample, step])
        assert taken.log_prob[i] == kept.log_prob[sample, step]
        assert (batch.t[i], taken.t_next[i]) == (kept.t[sample, step], kept.t_next[sample, step])
        assert torch.equal(batch.x0[i], rollout.latents[sample])


def test_before_the_first_update_the_ratio_is_exactly_one(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    loss = make_algo().loss(model, make_batch(model, roll))
    assert loss.metrics["ratio/max_dev"].max() == 0
    assert loss.metrics["ratio/clip_fraction"].max() == 0
    assert loss.value.item() == pytest.approx(-sum(ADVANTAGE) / 3, abs=1e-6)


def test_the_first_gradient_is_that_of_reinforce(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    batch = make_batch(model, roll)
    make_algo().loss(model, batch).value.backward()
    found = [p.grad.clone() for p in model.weights.parameters.values() if p.grad is not None]
    taken = batch.require_replayed()
    prediction = model.predict(batch.x, batch.t, batch.condition)
    step = FlowSDE(noise_level=0.7).step(
        batch.x, prediction, batch.t, taken.t_next, next=taken.next
    )
    assert step.log_prob is not None
    objective = -(batch.advantage * step.log_prob).mean()
    expected = torch.autograd.grad(objective, list(model.weights.parameters.values()))
    torch.testing.assert_close(found, list(expected))
    assert all(gradient != 0 for gradient in found)


def test_a_step_along_the_gradient_makes_good_samples_likelier(
    linear: MakeModel, roll: Roll
) -> None:
    model = linear()
    batch = make_batch(model, roll)
    make_algo().loss(model, batch).value.backward()
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter -= 1e-3 * parameter.grad
    moved = make_algo(clip_range=1.0).loss(model, batch)
    ratio = moved.metrics["ratio/mean"]
    assert ((ratio - 1) * batch.advantage).mean() > 0
    assert moved.value < -batch.advantage.mean()


def test_far_from_the_old_policy_the_clip_stops_the_gradient(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    batch = make_batch(model, roll)
    assert batch.replayed is not None
    for advantage, shift in ((1.0, -1.0), (-1.0, 1.0)):
        # the old policy found these steps far less (more) likely than the new one does
        taken = replace(batch.replayed, log_prob=batch.replayed.log_prob + shift)
        pushed = replace(batch, replayed=taken, advantage=torch.full((6,), advantage))
        loss = make_algo().loss(model, pushed)
        grads = torch.autograd.grad(loss.value, list(model.weights.parameters.values()))
        assert all(gradient == 0 for gradient in grads)
        assert loss.metrics["ratio/clip_fraction"].min() == 1


def test_outputs_carry_the_prediction_and_the_step(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    batch = make_batch(model, roll)
    outputs = make_algo().loss(model, batch).outputs
    assert outputs.prediction.requires_grad
    assert torch.equal(outputs.require_step().next, batch.require_replayed().next)


def test_it_computes_advantages_with_its_estimator() -> None:
    rewards = {"main": torch.tensor([1.0, 2, 3, 4]), "other": torch.tensor([4.0, 3, 2, 1])}
    rollout = Rollout([], [], groups=torch.zeros(4), index=torch.arange(4), rewards=rewards)
    for advantage in (GroupAdvantage(), GroupAdvantage(weights={"other": 1.0}, clip=0.5)):
        algo = GRPO(FlowSDE(), advantage)
        found, expected = algo.compute_advantages(rollout, "main"), advantage(rollout, "main")
        torch.testing.assert_close(found.advantage, expected.advantage, rtol=0, atol=0)
        assert algo.reward_names("main") == advantage.names("main")


def test_the_tolerance_is_a_tenth_of_the_clip_range() -> None:
    assert make_algo(clip_range=1e-4).ratio_tolerance == pytest.approx(1e-5)


def test_what_it_lacks_is_an_error(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = roll(model, ADVANTAGE)
    for incomplete in (replace(rollout, transitions=None), replace(rollout, advantage=None)):
        with pytest.raises(ValueError, match="transitions|advantages"):
            make_algo().training_items(incomplete, model, seed=0, iteration=0)
    with pytest.raises(ValueError, match="log-probability"):
        GRPO(ODE(model.forward_process), GroupAdvantage()).loss(model, make_batch(model, roll))


# Provenance: diffusion.md 1.6: sigma from .75 to 2/3, noise .7; the step's deviation is .35
TEMPFLOW: dict[Weighting, float] = {
    "none": 1.0,
    "tempflow": 0.7875,
    "tempflow_noise": 0.7875 * 12**0.5,
}


@pytest.mark.parametrize("weighting", TEMPFLOW)
def test_golden_weight_of_a_step(weighting: Weighting) -> None:
    t, t_next = (uniform_sigmas(10, 3.0)[i].expand(2) for i in (5, 6))
    x = torch.zeros(2, 1, 2, 2)
    std = FlowSDE(noise_level=0.7).step(x, x, t, t_next, noise=x).std
    torch.testing.assert_close(std.flatten(), torch.full((2,), 0.35), rtol=1e-5, atol=0)
    weight = step_weight(weighting, std, t, t_next)
    torch.testing.assert_close(weight, torch.full((2,), TEMPFLOW[weighting]), rtol=1e-5, atol=0)


@pytest.mark.parametrize("weighting", TEMPFLOW)
def test_each_step_counts_by_its_weight(
    weighting: Weighting, linear: MakeModel, roll: Roll
) -> None:
    model = linear()
    batch = make_batch(model, roll)
    taken = batch.require_replayed()
    # off the old policy, within and beyond the clip
    shift = torch.tensor([0.0, 5e-4, 0.1, -0.1, 0.1, -0.1])
    batch = replace(batch, replayed=replace(taken, log_prob=taken.log_prob + shift))
    plain, weighted = (
        GRPO(FlowSDE(noise_level=0.7), GroupAdvantage(), clip_range=1e-3, weighting=w).loss(
            model, batch
        )
        for w in ("none", weighting)
    )
    std = weighted.outputs.require_step().std
    weight = step_weight(weighting, std, batch.t, taken.t_next).detach()
    expected = weight * plain.metrics["loss/policy"]
    torch.testing.assert_close(weighted.metrics["loss/policy"], expected)
    torch.testing.assert_close(weighted.value, expected.mean())
    assert (len(weight.unique()) == 1) is (weighting == "none")
    assert torch.equal(weighted.metrics["ratio/mean"], plain.metrics["ratio/mean"])


@pytest.mark.parametrize("size", [100, 4, 1])
def test_the_losses_of_a_samples_steps_are_averaged_or_summed(
    size: int, linear: MakeModel, roll: Roll
) -> None:
    model = linear()
    items = make_algo().training_items(roll(model, ADVANTAGE), model, seed=0, iteration=0)

    def total(over_steps: Literal["mean", "sum"]) -> torch.Tensor:
        algo = GRPO(FlowSDE(noise_level=0.7), GroupAdvantage(), over_steps=over_steps)
        parts = [(algo.loss(model, batch), len(batch)) for batch in items.split(size)]
        return sum(loss.value * count for loss, count in parts) / len(items)

    assert total("mean").item() == pytest.approx(-sum(ADVANTAGE) / 3, abs=1e-6)
    # two steps each
    assert total("sum").item() == pytest.approx(-2 * sum(ADVANTAGE) / 3, abs=1e-6)
    (batch, *_) = items.split(size)
    algo = GRPO(FlowSDE(noise_level=0.7), GroupAdvantage(), over_steps="sum")
    assert torch.equal(
        algo.loss(model, batch).metrics["loss/policy"],
        make_algo().loss(model, batch).metrics["loss/policy"],
    )
