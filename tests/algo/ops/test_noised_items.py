from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.awm import AWM
from rlfactory.algo.nft import NFT
from rlfactory.algo.ops.noised_items import noised_items, self_normalised
from rlfactory.algo.ops.old_log_probs import log_ratio
from rlfactory.algo.times import UniformTimes
from rlfactory.algo.vgrpo import VGRPO
from rlfactory.batch import Batch
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD
from rlfactory.rollout import Rollout
from rlfactory.utils import rng
from rlfactory.utils.pytree import require

SIGMAS = uniform_sigmas(6, 3.0)
TIMES = UniformTimes(count=3)
ONCE = UniformTimes(count=1, low=0.3, high=0.7)
ADVANTAGE = GroupAdvantage()

MakeModel = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


@pytest.mark.parametrize("kind", ["flow", "vp"])
@pytest.mark.parametrize("shared", [True, False])
def test_items_are_the_samples_with_noise(
    kind: str, shared: bool, linear: MakeModel, noisy: MakeModel, roll: Roll
) -> None:
    model = (linear if kind == "flow" else noisy)()
    rollout = replace(roll(model, [1.0, 2.0, 3.0]), groups=torch.tensor([7, 2, 7]))
    items = noised_items(rollout, model, TIMES, SIGMAS, shared_noise=shared, seed=5, iteration=3)
    (batch,) = items.split(9)
    x = batch.x.view(3, 3, 1, 2, 2)
    keys = [7, 2, 7] if shared else [0, 1, 2]
    assert torch.equal(items.eps, rng.normal(5, "noise", [3], keys, [3, 1, 2, 2]))
    eps = require(items.eps, "noise")
    latents = require(rollout.latents, "latents")
    for row in range(3):
        for place in range(3):
            t = items.t[row, place][None]
            expected = model.forward_process.noise(latents[row][None], eps[row, place][None], t)
            torch.testing.assert_close(x[row, place][None], expected)
    assert items.replayed is None
    assert items.old_log_prob is None
    assert torch.equal(items.advantage, torch.tensor([1.0, 2.0, 3.0]))


def test_what_was_noted_of_a_sample_goes_with_its_items(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = replace(roll(model, [1.0, 2.0]), old_log_prob=torch.arange(6.0).view(2, 3))
    turned = rollout[torch.tensor([1, 0])]
    items = noised_items(turned, model, TIMES, SIGMAS, seed=0, iteration=0)
    assert [batch.old_log_prob.tolist() for batch in items.split(3)] == [
        [3.0, 4.0, 5.0],
        [0.0, 1.0, 2.0],
    ]


@pytest.mark.parametrize("name", ["latents", "condition", "advantage"])
def test_what_is_missing_is_an_error(name: str, linear: MakeModel, roll: Roll) -> None:
    rollout = replace(roll(linear(), [1.0, 2.0]), **{name: None})
    with pytest.raises(ValueError, match=name):
        noised_items(rollout, linear(), TIMES, SIGMAS, seed=0, iteration=0)


def test_the_ratio_of_what_was_not_noted_is_one_and_has_a_gradient() -> None:
    scores = torch.tensor([0.3, -2.0], requires_grad=True)
    for old in (None, torch.full((2,), torch.nan)):
        change = log_ratio(scores, old)
        assert torch.equal(change, torch.zeros(2))
        (gradient,) = torch.autograd.grad(change.sum(), scores)
        assert torch.equal(gradient, torch.ones(2))
    change = log_ratio(scores, torch.tensor([torch.nan, -2.5]))
    assert change.tolist() == [0.0, 0.5]


def test_an_error_by_its_own_magnitude() -> None:
    error = torch.tensor([[1.0, -3.0], [0.0, 0.0]], requires_grad=True)
    found = self_normalised(error)
    assert found.tolist() == [2.5, 0.0]
    found.sum().backward()
    assert error.grad is not None
    assert error.grad.tolist() == [[0.5, -1.5], [0.0, 0.0]]  # 2 e / D / mean |e|
    assert self_normalised(torch.full((1, 2), 1e-6)).item() == pytest.approx(1e-7)
    assert self_normalised(torch.full((1, 2), 1e-6), 1e-8).item() == pytest.approx(1e-6)


def make(kind: type[Any], **options: Any) -> Any:
    return kind(ADVANTAGE, ONCE, SIGMAS, **options)


ALGORITHMS = [
    (NFT, {}),
    (AWM, {"weighting": "ghuber"}),
    (AWM, {"weighting": "uniform", "ratio": "sum_first"}),
    (AWM, {"clip_range": None}),
    (VGRPO, {}),
    (VGRPO, {"prediction": "v"}),
    (VGRPO, {"prediction": "eps", "adaptive": False}),
]


def off(model: ImageModel, batch: Batch) -> Tensor:
    """How far from right the network is, `[N]`."""
    target = model.forward_process.target(batch.x0, batch.require_eps(), batch.t)
    prediction = model.predict(batch.x, batch.t, batch.condition)
    return (prediction - target).pow(2).flatten(1).mean(1).detach()


@pytest.mark.parametrize(("kind", "options"), ALGORITHMS)
@pytest.mark.parametrize("process", ["flow", "vp"])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_step_along_the_gradient_makes_a_good_sample_likelier_and_a_bad_one_less_so(
    kind: type[Any],
    options: dict[str, Any],
    process: str,
    advantage: float,
    linear: MakeModel,
    noisy: MakeModel,
    roll: Roll,
) -> None:
    model, algo = (linear if process == "flow" else noisy)(), make(kind, **options)
    model.weights.add(OLD)
    (batch,) = algo.training_items(roll(model, [advantage]), model, seed=1, iteration=0).split(100)
    loss = algo.loss(model, batch)
    loss.value.backward()
    before = off(model, batch)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            assert parameter.grad is not None
            assert torch.isfinite(parameter.grad)
            parameter -= 1e-3 * parameter.grad / parameter.grad.norm()
    assert advantage * (off(model, batch) - before) < 0


@pytest.mark.parametrize(("kind", "options"), ALGORITHMS)
def test_items_in_batches_of_any_size_have_the_same_loss(
    kind: type[Any], options: dict[str, Any], linear: MakeModel, roll: Roll
) -> None:
    model = linear()
    model.weights.add(OLD)
    algo = kind(ADVANTAGE, UniformTimes(count=2), SIGMAS, **options)
    items = algo.training_items(roll(model, [1.0, -0.5, 0.25]), model, seed=1, iteration=0)
    (whole,) = (algo.loss(model, batch) for batch in items.split(100))
    parts = [(algo.loss(model, batch).value * len(batch), len(batch)) for batch in items.split(2)]
    assert len(parts) == 3
    mean = sum(value for value, _ in parts) / sum(count for _, count in parts)
    torch.testing.assert_close(mean, whole.value)
