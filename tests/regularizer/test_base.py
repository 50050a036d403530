import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

import rlfactory.regularizer
from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.grpo import GRPO
from rlfactory.batch import Batch, Outputs
from rlfactory.config.schema.signature import constructor_parameters
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer
from rlfactory.regularizer.coefficient import Fixed, PerStep, Proportional
from rlfactory.regularizer.none import NoRegularizer
from rlfactory.rollout import Rollout

for _module in pkgutil.iter_modules(rlfactory.regularizer.__path__):
    importlib.import_module(f"rlfactory.regularizer.{_module.name}")


def subclasses(kind: type) -> list[type]:
    below = [found for own in kind.__subclasses__() for found in subclasses(own)]
    return below if inspect.isabstract(kind) else [kind, *below]


def options_of(kind: type) -> set[str]:
    return {p.name for p in constructor_parameters(kind)}


OURS: list[Any] = [k for k in subclasses(Regularizer) if k.__module__.startswith("rlfactory.")]
KINDS = [kind for kind in OURS if kind.requires not in ("tokens", "terms")]
PULLING = [kind for kind in KINDS if kind is not NoRegularizer]
FREE = [kind for kind in PULLING if "reference" in options_of(kind)]
WEIGHT_SETS = ["reference", "old", "ema"]
KL = "kl/reference"

DYNAMICS = FlowSDE(noise_level=0.7)


def make(kind: type[Regularizer], value: float = 1.0, **options: object) -> Any:
    """Of those that leave the choice, one that compares with `old` what every batch has."""
    takes = options_of(kind)
    if "coefficient" in takes:
        options = {"coefficient": Fixed(value=value), **options}
    if "compare" in takes:
        options = {"compare": "prediction", **options}
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
    algo = GRPO(DYNAMICS, GroupAdvantage())
    (batch,) = algo.training_items(rollout, model, seed=0, iteration=0).split(100)
    return model, batch


def outputs(model: ImageModel, batch: Batch) -> Outputs:
    found = GRPO(DYNAMICS, GroupAdvantage()).loss(model, batch).outputs
    assert isinstance(found, Outputs)
    return found


def measure(
    regularizer: Regularizer[Any, Any, Any], model: ImageModel, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    penalty, measured = regularizer.penalty(model, batch, outputs(model, batch))
    return penalty, measured[KL]


def gradients(model: ImageModel) -> list[float]:
    found = [parameter.grad for parameter in model.weights.parameters.values()]
    return [float(grad) for grad in found if grad is not None]


@pytest.mark.parametrize("kind", PULLING)
def test_it_returns_a_scalar_and_one_divergence_an_item(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    penalty, kl = measure(make(kind), model, batch)
    assert penalty.shape == ()
    assert kl.shape == (len(batch),)
    assert not kl.requires_grad
    assert (kl >= 0).all()
    assert kind.requires in ("velocity", "transitions")


@pytest.mark.parametrize("kind", FREE)
@pytest.mark.parametrize("name", WEIGHT_SETS)
def test_any_weight_set_may_be_the_reference(
    kind: type[Regularizer], name: str, setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    for other in {*WEIGHT_SETS} - {name}:
        model.weights.update(other, 0.0)
    regularizer = make(kind, reference=name)
    assert regularizer.references == {name}
    assert (measure(regularizer, model, batch)[1] > 0).all()


@pytest.mark.parametrize("kind", PULLING)
def test_the_gradient_reaches_the_policy_and_not_the_reference(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    regularizer = make(kind)
    (name,) = regularizer.references
    penalty, kl = measure(regularizer, model, batch)
    assert (kl > 0).all()
    penalty.backward()
    assert len(gradients(model)) == 2
    assert all(gradient != 0 for gradient in gradients(model))
    before = {k: p.detach().clone() for k, p in model.weights.parameters.items()}
    with model.weights(name):
        # the gradient is the policy's alone: a step down it lessens the divergence
        assert not any(torch.equal(p, before[k]) for k, p in model.weights.parameters.items())
    size = sum(gradient**2 for gradient in gradients(model)) ** 0.5
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter -= 1e-3 * parameter.grad / size
    assert measure(regularizer, model, batch)[1].mean() < kl.mean()


@pytest.mark.parametrize("kind", PULLING)
def test_it_vanishes_at_the_reference_with_its_gradient(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    for name in WEIGHT_SETS:
        model.weights.update(name, 0.0)
    penalty, kl = measure(make(kind), model, batch)
    assert penalty == 0
    assert torch.equal(kl, torch.zeros(len(batch)))
    penalty.backward()
    assert gradients(model) == [0.0, 0.0]


@pytest.mark.parametrize("kind", PULLING)
def test_the_coefficient_scales_the_penalty_and_not_the_divergence(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    penalty, kl = measure(make(kind, 0.5), model, batch)
    torch.testing.assert_close(penalty, 0.5 * kl.mean())
    none, same = measure(make(kind, 0.0), model, batch)
    assert none == 0
    assert torch.equal(same, kl), "a weight of 0 still measures"


@pytest.mark.parametrize("kind", KINDS)
def test_the_policys_own_weights_are_left_as_they_were(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    before = {k: p.detach().clone() for k, p in model.weights.state_dict().items()}
    make(kind).penalty(model, batch, outputs(model, batch))
    assert all(torch.equal(v, before[k]) for k, v in model.weights.state_dict().items())


@pytest.mark.parametrize("kind", PULLING)
def test_what_a_weight_set_predicts_is_asked_once(
    kind: type[Regularizer], setting: tuple[ImageModel, Batch]
) -> None:
    model, batch = setting
    known = outputs(model, batch)
    first, _ = make(kind).penalty(model, batch, known)
    evaluations = model.calls  # type: ignore[attr-defined]
    again, _ = make(kind).penalty(model, batch, known)
    assert model.calls == evaluations  # type: ignore[attr-defined]
    assert torch.equal(first, again)


@pytest.mark.parametrize("kind", PULLING)
def test_a_coefficient_follows_the_divergence_at_its_moment(kind: type[Regularizer]) -> None:
    each_iteration = Proportional(value=1.0, target=0.1, horizon=10)
    regularizer = make(kind, coefficient=each_iteration)
    assert regularizer.coefficients["kl/coefficient"] is each_iteration
    regularizer.update_coefficients("step", {KL: 1.0}, 1.0, 5)
    regularizer.update_coefficients("iteration", {"kl/other": 1.0}, 1.0, 5)
    assert each_iteration.value == 1.0
    regularizer.update_coefficients("iteration", {KL: 1.0}, 1.0, 5)
    assert each_iteration.value == pytest.approx(1 + 0.2 * 5 / 10)

    each_step = PerStep(value=1.0, target=0.1, horizon=10)
    regularizer = make(kind, coefficient=each_step)
    regularizer.update_coefficients("iteration", {KL: 1.0}, 1.0, 5)
    assert each_step.value == 1.0
    regularizer.update_coefficients("step", {KL: 0.0}, 1.0, 5)
    assert each_step.value == pytest.approx(1 - 0.3 / 10)


def test_a_sequence_is_as_long_as_it_is() -> None:
    coefficient = Proportional(value=1.0, target=8.0, horizon=10, clip=5.0)
    regularizer = make(PULLING[0], coefficient=coefficient)
    regularizer.update_coefficients("iteration", {KL: 2.0}, 6.0, 5)
    assert coefficient.value == pytest.approx(1 + (2 * 6 / 8 - 1) * 5 / 10)


def test_what_measures_nothing_steers_nothing() -> None:
    NoRegularizer().update_coefficients("iteration", {KL: 1.0}, 1.0, 5)
    assert NoRegularizer().coefficients == {}
