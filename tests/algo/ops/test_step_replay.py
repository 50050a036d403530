from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from rlfactory.algo.ops.step_replay import replay_step, subsample_transitions, transition_items
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.ode import ODE
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

MakeModel = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


def test_items_are_the_steps_that_were_kept(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = roll(model, [1.5, -0.5, 0.25])
    items, kept = transition_items(rollout, model), require(rollout.transitions, "steps")
    taken = require(items.replayed, "steps")
    assert len(items) == 6
    for found, expected in (
        (items.x, kept.x),
        (items.t, kept.t),
        (items.x0, rollout.latents),
        (items.advantage, rollout.advantage),
        (taken.t_next, kept.t_next),
        (taken.next, kept.next),
        (taken.log_prob, kept.log_prob),
        (taken.mean, kept.mean),
    ):
        assert torch.equal(found, require(expected, "it"))
    assert items.eps is None
    assert items.old_log_prob is None


def test_a_replay_is_the_step_and_has_a_gradient(linear: MakeModel, roll: Roll) -> None:
    model, dynamics = linear(), FlowSDE(noise_level=0.7)
    (batch,) = transition_items(roll(model, [1.5, -0.5, 0.25], dynamics), model).split(100)
    prediction, step, log_prob = replay_step(model, batch, dynamics)
    taken = batch.require_replayed()
    assert torch.equal(step.next, taken.next)
    assert torch.equal(step.mean, require(taken.mean, "means"))
    assert torch.equal(log_prob, taken.log_prob)
    assert torch.equal(prediction, model.predict(batch.x, batch.t, batch.condition))
    assert log_prob.requires_grad


def test_what_is_missing_is_an_error(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = roll(model, [1.5, -0.5])
    for name in ("transitions", "latents", "condition", "advantage"):
        with pytest.raises(ValueError, match=name):
            transition_items(replace(rollout, **{name: None}), model)
    (batch,) = transition_items(rollout, model).split(100)
    with pytest.raises(ValueError, match="log-probability"):
        replay_step(model, batch, ODE(model.forward_process))


def test_a_fraction_of_the_steps_is_drawn_for_each_sample(linear: MakeModel, roll: Roll) -> None:
    rollout = roll(linear(), [1.0] * 40)
    kept = require(rollout.transitions, "steps")
    some = subsample_transitions(rollout, 0.5, seed=0, iteration=0)
    assert some.t.shape == (40, 1)
    first = some.t[:, 0] == kept.t[:, 0]
    assert 8 < int(first.sum()) < 32, "either step, about as often"
    for row in range(40):
        column = 0 if first[row] else 1
        assert torch.equal(some.x[row, 0], kept.x[row, column])
        assert torch.equal(require(some.mean, "means")[row, 0], require(kept.mean, "")[row, column])
    again = subsample_transitions(rollout[torch.tensor([7, 3])], 0.5, seed=0, iteration=0)
    assert torch.equal(again.t, some.t[[7, 3]]), "by the sample's number"
    assert not torch.equal(subsample_transitions(rollout, 0.5, seed=0, iteration=1).t, some.t)


@pytest.mark.parametrize(("fraction", "count"), [(1.0, 2), (0.99, 1), (0.1, 1)])
def test_at_least_one_step_is_left(
    fraction: float, count: int, linear: MakeModel, roll: Roll
) -> None:
    rollout = roll(linear(), [1.0, -1.0])
    assert subsample_transitions(rollout, fraction, seed=0, iteration=0).t.shape == (2, count)
