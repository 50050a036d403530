from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from rlfactory.algo.transitions import replayed, transition_items
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.ode import ODE
from rlfactory.model.base import ImageModel
from rlfactory.nest import present
from rlfactory.rollout import Rollout

MakeModel = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


def test_items_are_the_steps_that_were_kept(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = roll(model, [1.5, -0.5, 0.25])
    items, kept = transition_items(rollout, model), present(rollout.transitions, "steps")
    taken = present(items.taken, "steps")
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
        assert torch.equal(found, present(expected, "it"))
    assert items.eps is None
    assert items.old is None


def test_a_replay_is_the_step_and_has_a_gradient(linear: MakeModel, roll: Roll) -> None:
    model, dynamics = linear(), FlowSDE(noise_level=0.7)
    (batch,) = transition_items(roll(model, [1.5, -0.5, 0.25], dynamics), model).split(100)
    prediction, step, log_prob = replayed(model, batch, dynamics)
    taken = batch.replay()
    assert torch.equal(step.next, taken.next)
    assert torch.equal(step.mean, present(taken.mean, "means"))
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
        replayed(model, batch, ODE(model.forward_process))
