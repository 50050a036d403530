import importlib
import inspect
import pkgutil
from collections.abc import Callable

import pytest
import torch

import rlfactory.regularizer
from rlfactory.algo.grpo import GRPO
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer
from rlfactory.regularizer.none import NoRegularizer
from rlfactory.rollout import Batch, Outputs, Rollout

for _module in pkgutil.iter_modules(rlfactory.regularizer.__path__):
    importlib.import_module(f"rlfactory.regularizer.{_module.name}")
OURS = [k for k in Regularizer.__subclasses__() if k.__module__.startswith("rlfactory.")]
KINDS = [kind for kind in OURS if kind.needs != "tokens"]
PULLING = [kind for kind in KINDS if kind is not NoRegularizer]
WEIGHT_SETS = ["reference", "old", "ema"]

DYNAMICS = FlowSDE(noise_level=0.7)


def make(kind: type[Regularizer], **options: object) -> Regularizer:
    takes = inspect.signature(kind).parameters
    return kind(DYNAMICS, **options) if "dynamics" in takes else kind(**options)


@pytest.fixture
def setting(
    linear: Callable[..., ImageModel], roll: Callable[..., Rollout]
) -> tuple[ImageModel, Batch]:
    """A model that has moved away from each of its weight sets, and transitions it has taken."""
    model = linear()
    for name in WEIGHT_SETS:
        model.weights.add(name)
    rollout = roll(model, [1.0, -1.0, 0.5])
    for parameter in model.weights.parameters.values():
        parameter.data.add_(0.2)
    return model, GRPO(DYNAMICS).items(rollout, model, seed=0, iteration=0)


def outputs(model: ImageModel, batch: Batch) -> Outputs:
    return GRPO(DYNAMICS).loss(model, batch).outputs


@pytest.mark.parametrize("kind", KINDS)
def test_it_returns_a_scalar_and_one_divergence_an_item(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    penalty, kl = make(kind).penalty(model, batch, outputs(model, batch))
    assert penalty.shape == ()
    assert kl.shape == (len(batch),)
    assert not kl.requires_grad
    assert (kl >= 0).all()
    assert kind.needs in ("nothing", "velocity", "transitions")


@pytest.mark.parametrize("kind", PULLING)
@pytest.mark.parametrize("name", WEIGHT_SETS)
def test_the_gradient_reaches_the_policy_and_not_the_reference(
    kind: type[Regularizer], name: str, setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    regularizer = make(kind, beta=1.0, reference=name)
    assert regularizer.reference == name
    penalty, kl = regularizer.penalty(model, batch, outputs(model, batch))
    assert (kl > 0).all()
    penalty.backward()
    before = {k: p.detach().clone() for k, p in model.weights.parameters.items()}
    assert all(p.grad is not None and p.grad != 0 for p in model.weights.parameters.values())
    with model.weights(name):
        # the gradient is the policy's alone: a step down it lessens the divergence
        assert not any(torch.equal(p, before[k]) for k, p in model.weights.parameters.items())
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter -= 1e-3 * parameter.grad
    _, after = regularizer.penalty(model, batch, outputs(model, batch))
    assert after.mean() < kl.mean()


@pytest.mark.parametrize("kind", PULLING)
def test_it_vanishes_at_the_reference(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    model.weights.update("old", 0.0)
    penalty, kl = make(kind, reference="old").penalty(model, batch, outputs(model, batch))
    assert penalty == 0
    assert torch.equal(kl, torch.zeros(len(batch)))


@pytest.mark.parametrize("kind", PULLING)
def test_beta_scales_the_penalty_and_not_the_divergence(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    penalty, kl = make(kind, beta=0.5).penalty(model, batch, outputs(model, batch))
    torch.testing.assert_close(penalty, 0.5 * kl.mean())
    none, same = make(kind, beta=0.0).penalty(model, batch, outputs(model, batch))
    assert none == 0
    assert torch.equal(same, kl)


@pytest.mark.parametrize("kind", KINDS)
def test_the_policys_own_weights_are_left_as_they_were(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    before = {k: p.detach().clone() for k, p in model.weights.state_dict().items()}
    make(kind).penalty(model, batch, outputs(model, batch))
    assert all(torch.equal(v, before[k]) for k, v in model.weights.state_dict().items())
