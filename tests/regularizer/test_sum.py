from collections.abc import Callable

import pytest
import torch

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.grpo import GRPO
from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.coefficient import Coefficient, Fixed, PerStep, Proportional
from rlfactory.regularizer.kl_behaviour import KLBehaviour
from rlfactory.regularizer.kl_gaussian import KLGaussian
from rlfactory.regularizer.kl_v import KLVelocity
from rlfactory.regularizer.sum import Sum
from rlfactory.rollout import Rollout

DYNAMICS = FlowSDE(noise_level=0.7)


def terms(first: Coefficient, second: Coefficient) -> Sum:
    return Sum(
        terms={
            "reference": KLVelocity(coefficient=first),
            "steps": KLGaussian(DYNAMICS, coefficient=second),
            "old": KLVelocity(coefficient=Fixed(value=0.5), reference="old"),
        }
    )


@pytest.fixture
def setting(
    linear: Callable[..., ImageModel], roll: Callable[..., Rollout]
) -> tuple[ImageModel, Batch]:
    """A model that stands away from its reference, and elsewhere from its old policy."""
    model = linear()
    model.weights.add("reference")
    rollout = roll(model, [1.0, -1.0, 0.5])
    for parameter in model.weights.parameters.values():
        parameter.data.add_(0.2)
    model.weights.add("old")
    for parameter in model.weights.parameters.values():
        parameter.data.add_(0.1)
    algo = GRPO(DYNAMICS, GroupAdvantage())
    (batch,) = algo.training_items(rollout, model, seed=0, iteration=0).split(100)
    return model, batch


def outputs(model: ImageModel, batch: Batch) -> Outputs:
    found = GRPO(DYNAMICS, GroupAdvantage()).loss(model, batch).outputs
    assert isinstance(found, Outputs)
    return found


def test_it_is_the_sum_of_its_terms_and_so_is_its_gradient(
    setting: tuple[ImageModel, Batch],
) -> None:
    model, batch = setting
    parameters = list(model.weights.parameters.values())
    whole = terms(Fixed(value=2.0), Fixed(value=3.0))
    penalty, measured = whole.penalty(model, batch, outputs(model, batch))
    gradient = torch.autograd.grad(penalty, parameters)
    expected, slope = 0.0, [0.0, 0.0]
    for name, term in whole.terms.items():
        part, own = term.penalty(model, batch, outputs(model, batch))
        torch.testing.assert_close(measured[f"kl/{name}"], own["kl/reference"])
        expected += part.item()
        grads = torch.autograd.grad(part, parameters)
        assert all(grad != 0 for grad in grads)
        slope = [s + grad.item() for s, grad in zip(slope, grads, strict=True)]
    assert list(measured) == ["kl/reference", "kl/steps", "kl/old"]
    assert penalty.item() == pytest.approx(expected)
    assert [grad.item() for grad in gradient] == pytest.approx(slope)
    assert penalty.shape == ()


def test_it_vanishes_where_all_weight_sets_agree(setting: tuple[ImageModel, Batch]) -> None:
    model, batch = setting
    for name in ("reference", "old"):
        model.weights.update(name, 0.0)
    whole = terms(Fixed(value=2.0), Fixed(value=3.0))
    penalty, _ = whole.penalty(model, batch, outputs(model, batch))
    gradient = torch.autograd.grad(penalty, list(model.weights.parameters.values()))
    assert penalty == 0
    assert [grad.item() for grad in gradient] == [0.0, 0.0]


def test_each_weight_set_is_run_once(setting: tuple[ImageModel, Batch]) -> None:
    model, batch = setting
    known = outputs(model, batch)
    before = model.calls  # type: ignore[attr-defined]
    terms(Fixed(value=1.0), Fixed(value=1.0)).penalty(model, batch, known)
    assert model.calls == before + 2  # type: ignore[attr-defined]
    assert set(known.by_weight_set) == {"reference", "old"}
    assert not any(prediction.requires_grad for prediction in known.by_weight_set.values())


def test_it_needs_the_weight_sets_of_all_its_terms() -> None:
    assert terms(Fixed(value=1.0), Fixed(value=1.0)).references == {"reference", "old"}
    stored = KLBehaviour(coefficient=Fixed(value=1.0), compare="surrogate")
    assert Sum(terms={"behaviour": stored}).references == set()


def test_each_coefficient_follows_its_own_divergence_at_its_own_moment() -> None:
    first = Proportional(value=1.0, target=1.0, horizon=100)
    second = PerStep(value=1.0, target=1.0, horizon=100)
    whole = terms(first, second)
    shown = {"kl/reference/coefficient": first, "kl/steps/coefficient": second}
    assert whole.coefficients == {
        **shown,
        "kl/old/coefficient": whole.terms["old"].coefficient,
    }
    measured = {"kl/reference": 9.0, "kl/steps": 0.0, "kl/old": 9.0}
    whole.update_coefficients("iteration", measured, 1.0, 10)
    assert (first.value, second.value) == (pytest.approx(1.02), 1.0)
    whole.update_coefficients("step", measured, 1.0, 10)
    assert (first.value, second.value) == (pytest.approx(1.02), pytest.approx(0.997))
    whole.update_coefficients("step", {"kl/reference": 9.0}, 1.0, 10)
    assert second.value == pytest.approx(0.997), "what was not measured moves nothing"
    assert whole.coefficients["kl/old/coefficient"].value == 0.5
