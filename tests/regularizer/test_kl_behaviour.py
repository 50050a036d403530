from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.nft import NFT
from rlfactory.algo.ops.noised_items import self_normalised
from rlfactory.algo.times import UniformTimes
from rlfactory.algo.vgrpo import VGRPO
from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.kl_behaviour import KLBehaviour
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

# Provenance: diffusion.md 1.12, golden surrogates (mean/mean) of the new and of the old policy
# with the ratio [1.01359154, 1.01221688]; k2 and k3 of it by hand.
NEW, OLD = torch.tensor([0.084, 0.05]), torch.tensor([0.0975, 0.06214286])
GOLDEN = {"k2": [9.1125e-5, 7.37245e-5], "k3": [9.15362e-5, 7.40234e-5]}
MODEL: Any = None  # the surrogates are all that is compared
BATCH: Any = SimpleNamespace(penalty_weight=None)


def behaviour(
    compare: Literal["surrogate", "prediction"], estimator: Literal["k2", "k3"] = "k2"
) -> KLBehaviour:
    return KLBehaviour(coefficient=Fixed(value=2.0), compare=compare, estimator=estimator)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_golden(estimator: Any) -> None:
    regularizer = behaviour("surrogate", estimator)
    surrogate = NEW.double().requires_grad_()
    log_ratio = OLD.double() - surrogate
    assert log_ratio.exp().tolist() == pytest.approx([1.01359154, 1.01221688], rel=1e-7)
    penalty, measured = regularizer.penalty(MODEL, BATCH, Outputs(NEW, log_ratio=log_ratio))
    kl = measured["kl/reference"]
    torch.testing.assert_close(kl, torch.tensor(GOLDEN[estimator]), rtol=1e-3, atol=0)
    torch.testing.assert_close(penalty, 2 * kl.mean())
    assert regularizer.references == set()
    # the new surrogate is smaller, its likelihood larger: the pull is back up
    penalty.backward()
    assert surrogate.grad is not None
    assert (surrogate.grad < 0).all()


def test_a_sample_is_weighed_once() -> None:
    """V-GRPO's ratio is one of each sample; weights, as GARDO's in a sum, come with its items."""
    weighed: Any = SimpleNamespace(penalty_weight=torch.tensor([2.0, 2.0, 2.0, 0.0, 0.0, 0.0]))
    outputs = Outputs(NEW, log_ratio=torch.tensor([0.1, 0.2]))
    penalty, _ = behaviour("surrogate").penalty(MODEL, weighed, outputs)
    torch.testing.assert_close(penalty, torch.tensor(2 * (2.0 * 0.1**2 / 2) / 2))


@pytest.mark.parametrize("estimator", ["k2", "k3"])
@pytest.mark.parametrize("moved", [-0.5, 0.5])
def test_it_pulls_back_from_either_side(estimator: Any, moved: float) -> None:
    log_ratio = torch.full((3,), moved, requires_grad=True)
    penalty, _ = behaviour("surrogate", estimator).penalty(
        MODEL, BATCH, Outputs(NEW, log_ratio=log_ratio)
    )
    penalty.backward()
    assert log_ratio.grad is not None
    assert (log_ratio.grad * moved > 0).all()


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_it_vanishes_where_nothing_has_moved(estimator: Any) -> None:
    log_ratio = torch.zeros(3, requires_grad=True)
    penalty, measured = behaviour("surrogate", estimator).penalty(
        MODEL, BATCH, Outputs(NEW, log_ratio=log_ratio)
    )
    penalty.backward()
    assert penalty == 0
    assert torch.equal(measured["kl/reference"], torch.zeros(3))
    assert torch.equal(log_ratio.grad, torch.zeros(3))


def test_without_a_surrogate_it_says_so() -> None:
    with pytest.raises(ValueError, match="ratio of a surrogate"):
        behaviour("surrogate").penalty(MODEL, BATCH, Outputs(NEW))


@pytest.fixture
def setting(
    linear: Callable[..., ImageModel], roll: Callable[..., Rollout]
) -> tuple[ImageModel, Batch]:
    """A model away from its old policy, and noised samples."""
    model = linear()
    model.weights.add("old")
    algo = NFT(GroupAdvantage(), UniformTimes(), uniform_sigmas(6, 3.0))
    items = algo.training_items(roll(model, [1.0, -1.0]), model, seed=0, iteration=0)
    (batch,) = items.split(100)
    for parameter in model.weights.parameters.values():
        parameter.data.add_(0.2)
    return model, batch


def test_clean_samples_of_a_flow_differ_by_time_times_velocity(
    setting: tuple[ImageModel, Batch],
) -> None:
    model, batch = setting
    prediction = model.predict(batch.x, batch.t, batch.condition)
    _, measured = behaviour("prediction").penalty(model, batch, Outputs(prediction))
    with torch.no_grad(), model.weights("old"):
        old = model.predict(batch.x, batch.t, batch.condition)
    expected = batch.t**2 * (prediction - old).flatten(1).pow(2).mean(1)
    torch.testing.assert_close(measured["kl/reference"], expected.detach(), rtol=1e-4, atol=1e-8)
    assert behaviour("prediction").references == {"old"}


def test_the_surrogates_gradient_reaches_the_weights(setting: tuple[ImageModel, Batch]) -> None:
    model, batch = setting

    def surrogate(prediction: Tensor) -> Tensor:
        error = model.forward_process.to_x0(batch.x, prediction, batch.t) - batch.x0
        return self_normalised(error)

    with torch.no_grad(), model.weights("old"):
        old = surrogate(model.predict(batch.x, batch.t, batch.condition))
    prediction = model.predict(batch.x, batch.t, batch.condition)
    outputs = Outputs(prediction, log_ratio=old - surrogate(prediction))
    penalty, _ = behaviour("surrogate").penalty(model, batch, outputs)
    penalty.backward()
    assert all(p.grad is not None and p.grad != 0 for p in model.weights.parameters.values())


def test_the_defaults_gradient_acts(linear: Callable[..., ImageModel], roll: Any) -> None:
    """At a surrogate's usual log-ratio, about 1e-2, the paper's penalty pulls; k2 hardly does."""
    model = linear()
    algo = VGRPO(GroupAdvantage(), UniformTimes(), uniform_sigmas(6, 3.0), clip_range=None)
    items = algo.training_items(roll(model, [1.0, -1.0]), model, seed=0, iteration=0)
    (batch,) = items.split(100)
    with torch.no_grad():
        batch = replace(batch, old_log_prob=algo.log_likelihoods(model, batch))
    model.weights.add("old")
    weights = [*model.weights.parameters.values()]
    for weight in weights:
        weight.data.add_(0.05)

    def norm(loss: Tensor) -> float:
        gradients = torch.autograd.grad(loss, weights, retain_graph=True)
        return float(torch.stack([g.flatten().norm() for g in gradients]).norm())

    found = algo.loss(model, batch)
    log_ratio = require(found.outputs.log_ratio, "the ratio")
    assert 2e-3 < log_ratio.abs().mean() < 4e-2, log_ratio
    default = KLBehaviour(coefficient=Fixed(value=0.3))
    assert default.compare == "prediction"
    share = {
        kl.compare: norm(kl.penalty(model, batch, found.outputs)[0]) / norm(found.value)
        for kl in (default, KLBehaviour(coefficient=Fixed(value=0.3), compare="surrogate"))
    }
    assert share["surrogate"] < 0.01 < 0.02 < share["prediction"], share
