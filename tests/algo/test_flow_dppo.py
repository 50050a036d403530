from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.flow_dppo import FlowDPPO, moves_away
from rlfactory.algo.grpo import GRPO
from rlfactory.batch import Batch
from rlfactory.dynamics.cps import CPS
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Condition, Rollout, Transitions
from rlfactory.utils.pytree import require

# Provenance: diffusion.md appendix A (inputs); outputs of the authors' `_flowdppo_kl_adv_loss` and
# `FlowSDEStrategy` (UniRL) in float64, noise 0.7, the step from .75 to 2/3, add_kl_coefficient
X = torch.tensor([[0.5, -1, 0.25, 2], [1.5, 0.1, -0.3, -0.7]]).view(2, 1, 2, 2)
V = torch.tensor([[0.2, 0.4, -0.6, 1], [-1, 0.3, 0.5, 0.05]]).view(2, 1, 2, 2)
NEXT = torch.tensor([[0.45, -1.05, 0.40, 1.80], [1.60, 0.05, -0.40, -0.70]]).view(2, 1, 2, 2)
V_OLD = V + torch.tensor([[0.01, -0.02, 0, 0.03], [0, 0.02, -0.01, 0.01]]).view(2, 1, 2, 2)
T, T_NEXT = (uniform_sigmas(10, 3.0)[i].expand(2) for i in (5, 6))
SDE = FlowSDE(noise_level=0.7)
RATIO = [1.0008482070, 1.0000049582]
KL = [1.5377232143e-5, 6.5902423469e-6]
MEAN_SHIFT = [1.8837109375e-6, 8.0730468750e-7]
LOSSES: list[tuple[list[float], float, list[float]]] = [
    ([2.0, -1.0], 1e-4, [-2.0016964140, 1.0000049582]),
    ([2.0, -1.0], 1e-5, [0.0, 1.0000049582]),
    ([2.0, -1.0], 1e-6, [0.0, 1.0000049582]),
    ([2.0, 1.0], 1e-5, [0.0, -1.0000049582]),
    ([2.0, 1.0], 1e-6, [0.0, 0.0]),
    ([-2.0, 1.0], 1e-6, [2.0016964140, 0.0]),
]

ADVANTAGE = [1.5, -0.5, 0.25]
MakeModel = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


class Constant:
    """A network that predicts the same at once."""

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        return V


def golden_batch(advantage: list[float]) -> Batch:
    was = SDE.step(X, V_OLD, T, T_NEXT, next=NEXT)
    return Batch(
        x=X,
        t=T,
        x0=X,
        sample=torch.arange(2),
        condition=Condition({}),
        advantage=torch.tensor(advantage),
        replayed=Transitions(T, T_NEXT, X, NEXT, require(was.log_prob, "a likelihood"), was.mean),
    )


def make_algo(kl_threshold: float = 1e-5, **options: Any) -> FlowDPPO:
    return FlowDPPO(SDE, GroupAdvantage(), kl_threshold=kl_threshold, **options)


def make_batch(model: ImageModel, roll: Roll, dynamics: Any = SDE) -> Batch:
    algo = FlowDPPO(dynamics, GroupAdvantage())
    items = algo.training_items(roll(model, ADVANTAGE, dynamics), model, seed=0, iteration=0)
    (batch,) = items.split(100)
    return batch


@pytest.mark.parametrize(("advantage", "kl_threshold", "expected"), LOSSES)
def test_golden_losses(advantage: list[float], kl_threshold: float, expected: list[float]) -> None:
    model: Any = Constant()
    loss = make_algo(kl_threshold).loss(model, golden_batch(advantage))
    # float32: the likelihoods are known to 1e-7
    torch.testing.assert_close(
        loss.metrics["loss/policy"], torch.tensor(expected), rtol=0, atol=1e-6
    )
    assert loss.value.item() == pytest.approx(sum(expected) / 2, abs=1e-6)
    masked = [float(value == 0) for value in expected]
    assert loss.metrics["ratio/clip_fraction"].tolist() == masked
    torch.testing.assert_close(
        loss.metrics["ratio/mean"] - 1, torch.tensor(RATIO) - 1, rtol=0, atol=3e-7
    )


@pytest.mark.parametrize(("divergence", "expected"), [("kl", KL), ("mean_shift", MEAN_SHIFT)])
def test_golden_divergence(divergence: Any, expected: list[float]) -> None:
    model: Any = Constant()
    loss = make_algo(divergence=divergence).loss(model, golden_batch([2.0, -1.0]))
    torch.testing.assert_close(loss.metrics["kl/step"], torch.tensor(expected), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "expected"),
    [(0.1, 1.0, True), (-0.1, -1.0, True), (0.1, -1.0, False), (-0.1, 1.0, False)]
    + [(0.0, 1.0, False), (0.1, 0.0, False)],
)
def test_which_updates_move_away(log_ratio: float, advantage: float, expected: bool) -> None:
    assert moves_away(torch.tensor(log_ratio), torch.tensor(advantage)).item() is expected


@pytest.mark.parametrize("dynamics", [SDE, CPS()], ids=["flow_sde", "cps"])
def test_before_the_first_update_it_is_grpo(dynamics: Any, linear: MakeModel, roll: Roll) -> None:
    found = []
    for kind in (FlowDPPO, GRPO):
        model = linear()
        batch = make_batch(model, roll, dynamics)
        loss = kind(dynamics, GroupAdvantage()).loss(model, batch)
        assert loss.metrics["ratio/max_dev"].max() == 0
        assert loss.metrics["ratio/clip_fraction"].max() == 0
        loss.value.backward()
        grads = [p.grad for p in model.weights.parameters.values()]
        found.append([loss.value.detach(), *(require(grad, "a gradient") for grad in grads)])
    torch.testing.assert_close(found[0], found[1])
    assert all(value != 0 for value in found[0])


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_beyond_the_threshold_only_the_way_back_has_a_gradient(
    advantage: float, linear: MakeModel, roll: Roll
) -> None:
    model = linear()
    batch = make_batch(model, roll)
    was = batch.require_replayed()
    for shift in (-1.0, 1.0):
        # the old policy found these steps less (more) likely, and centred them elsewhere
        moved = replace(was, log_prob=was.log_prob + shift, mean=require(was.mean, "means") + 0.1)
        pushed = replace(batch, replayed=moved, advantage=torch.full((6,), advantage))
        loss = make_algo().loss(model, pushed)
        grads = torch.autograd.grad(loss.value, list(model.weights.parameters.values()))
        is_away = advantage * shift < 0
        assert all((gradient == 0) == is_away for gradient in grads)
        assert set(loss.metrics["ratio/clip_fraction"].tolist()) == {float(is_away)}
        within = make_algo(kl_threshold=1e3).loss(model, pushed)
        assert within.metrics["ratio/clip_fraction"].max() == 0


def test_the_ratio_alone_does_not_mask(linear: MakeModel, roll: Roll) -> None:
    """What a clip would stop: the ratio of a sampled step is far off, its distribution is not."""
    model = linear()
    batch = make_batch(model, roll)
    was = batch.require_replayed()
    far = replace(batch, replayed=replace(was, log_prob=was.log_prob - 1))
    loss = make_algo().loss(model, replace(far, advantage=torch.ones(6)))
    assert loss.metrics["kl/step"].max() == 0
    assert loss.metrics["ratio/clip_fraction"].max() == 0
    assert loss.value.item() == pytest.approx(-torch.e, rel=1e-5)


def test_recomputed_means_take_the_place_of_the_sampled(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    batch = make_batch(model, roll)
    was = batch.require_replayed()
    nothing = torch.full_like(require(was.mean, "means"), torch.nan)
    on_policy = replace(
        batch,
        old_log_prob=torch.full((6,), torch.nan),
        replayed=replace(was, mean=nothing),
    )
    loss = make_algo().loss(model, on_policy)
    assert loss.metrics["kl/step"].max() == 0
    assert loss.metrics["ratio/max_dev"].max() == 0


def test_what_it_asks_of_a_rollout(linear: MakeModel, roll: Roll) -> None:
    assert FlowDPPO.stores_step_mean
    model = linear()
    batch = make_batch(model, roll)
    assert require(batch.require_replayed().mean, "means").shape == batch.x.shape
    with pytest.raises(ValueError, match="means of the sampling policy"):
        make_algo().loss(
            model, replace(batch, replayed=replace(batch.require_replayed(), mean=None))
        )
