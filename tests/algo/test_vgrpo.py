from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.times import UniformTimes
from rlfactory.algo.vgrpo import VGRPO, denoising_loss, prediction_error
from rlfactory.batch import TrainingItems
from rlfactory.dynamics.ops.forward_process import ForwardProcess, RectifiedFlow, VariancePreserving
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD
from rlfactory.rollout import Rollout

SIGMAS = uniform_sigmas(6, 3.0)
GROUPS = torch.tensor([0, 0, 1, 1])
# Provenance: diffusion.md 1.12: surrogates of the new and of the old policy on the inputs of
# appendix A, and the ratios by the mean and by the sum over dimensions.
GOLDEN_LOSS = [0.084, 0.05], [0.0975, 0.06214286]
GOLDEN_RATIO: dict[Any, list[float]] = {
    "mean": [1.01359154, 1.01221688],
    "sum": [1.0554846, 1.0497704],
}

Roll = Callable[..., Rollout]
MakeModel = Callable[..., ImageModel]


def vgrpo(times: UniformTimes | None = None, **options: Any) -> VGRPO:
    times = times or UniformTimes(count=4, shared="group")
    return VGRPO(GroupAdvantage(), times, SIGMAS, **options)


def double(values: list[float]) -> Tensor:
    return torch.tensor(values).double()


def gradient(value: Tensor, model: Any) -> Tensor:
    return torch.autograd.grad(value, model.v, retain_graph=True)[0]


@torch.no_grad()
def old_scores(algo: VGRPO, golden: Any) -> Tensor:
    model = golden.model()
    with model.weights(OLD):
        return algo.log_likelihoods(model, golden.batch())


def test_golden_surrogates(golden: Any) -> None:
    found = [-vgrpo().log_likelihoods(golden.model(), golden.batch()), -old_scores(vgrpo(), golden)]
    torch.testing.assert_close(found, [double(row) for row in GOLDEN_LOSS], rtol=1e-5, atol=0)


@pytest.mark.parametrize("reduction", GOLDEN_RATIO)
def test_golden_ratios(reduction: Any, golden: Any) -> None:
    algo = vgrpo(reduction=reduction, clip_range=None)
    loss = algo.loss(golden.model(), golden.batch(old_log_prob=old_scores(algo, golden)))
    expected = double(GOLDEN_RATIO[reduction])
    torch.testing.assert_close(loss.metrics["ratio/mean"], expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(loss.outputs.log_ratio.exp(), expected, rtol=1e-6, atol=0)
    assert loss.value.item() == pytest.approx(-(golden.advantage * expected).mean().item())
    assert len(loss.metrics["surrogate/mean"]) == 2


@pytest.mark.parametrize("process", [RectifiedFlow(), VariancePreserving.scaled_linear()])
def test_errors_are_related_by_the_process(process: ForwardProcess, golden: Any) -> None:
    t = golden.t
    prediction = golden.v.double()
    x = process.noise(golden.x0.double(), golden.eps.double(), t)
    batch = replace(golden.batch(), x=x)
    kinds: tuple[Any, ...] = ("x", "v", "eps")
    x0, v, eps = (prediction_error(process, batch, prediction, kind) for kind in kinds)
    # whatever is wrong, x is what it is: alpha off_x0 + sigma off_eps = 0
    alpha, sigma = (value.double().view(2, 1, 1, 1) for value in process.alpha_sigma(t))
    torch.testing.assert_close(alpha * x0 + sigma * eps, torch.zeros_like(x0), rtol=0, atol=1e-7)
    own = prediction - process.target(golden.x0, golden.eps, t)
    if process.name == "flow":
        torch.testing.assert_close(v, own, rtol=0, atol=1e-7)
        torch.testing.assert_close(x0, -t.view(2, 1, 1, 1).double() * v, rtol=0, atol=1e-7)
        torch.testing.assert_close(eps, (1 - t.view(2, 1, 1, 1)) * v, rtol=0, atol=1e-7)
    else:
        torch.testing.assert_close(eps, own, rtol=0, atol=1e-7)
        torch.testing.assert_close(v, eps / alpha, rtol=1e-6, atol=1e-7)
    assert x0.dtype == torch.float64
    assert (v != 0).all()


@pytest.mark.parametrize("kind", ["x", "v", "eps"])
def test_the_likelihood_is_of_the_error_of_what_is_predicted(kind: Any, golden: Any) -> None:
    scores = vgrpo(prediction=kind, adaptive=False).log_likelihoods(golden.model(), golden.batch())
    t = golden.t.double()
    factor = {"x": t**2, "v": torch.ones(2).double(), "eps": (1 - t) ** 2}[kind]
    # the velocity's mean square error, .0175 and .025 in diffusion.md 1.11
    expected = -factor * double([0.0175, 0.025])
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=0)


def test_the_gradient_sees_the_square_alone(golden: Any) -> None:
    model = golden.model()
    scores = vgrpo().log_likelihoods(model, golden.batch())
    off = -golden.t.view(2, 1, 1, 1) * (golden.v - (golden.eps - golden.x0))
    scale = off.flatten(1).abs().mean(1).view(2, 1, 1, 1)
    expected = -2 * off / scale / 4 * -golden.t.view(2, 1, 1, 1)
    torch.testing.assert_close(gradient(scores.sum(), model), expected, rtol=1e-4, atol=1e-6)


def test_the_adaptive_surrogate_grows_as_the_error_the_plain_one_as_its_square() -> None:
    error = torch.randn(3, 1, 2, 2, generator=torch.Generator().manual_seed(0)).double()
    for adaptive, power in ((True, 1), (False, 2)):
        once, thrice = (denoising_loss(k * error, adaptive=adaptive) for k in (1, 3))
        torch.testing.assert_close(thrice, 3**power * once)
        summed = denoising_loss(error, adaptive=adaptive, reduction="sum")
        torch.testing.assert_close(summed, 4 * once)


def test_where_learning_is_on_policy_the_ratio_is_one_and_the_gradient_reinforces(
    golden: Any,
) -> None:
    model, algo = golden.model(), vgrpo()
    batch = golden.batch(items_per_sample=2, advantage=torch.tensor([2.0, 2.0]))
    for old in (None, torch.full((2,), torch.nan).double()):
        loss = algo.loss(model, replace(batch, old_log_prob=old))
        assert torch.equal(loss.metrics["ratio/mean"], torch.ones(1).double())
        expected = gradient(-2 * algo.log_likelihoods(model, batch).mean(), model)
        torch.testing.assert_close(gradient(loss.value, model), expected)
        assert (expected != 0).all()


def test_a_sample_has_one_ratio_by_the_mean_over_its_pairs(golden: Any) -> None:
    algo = vgrpo(clip_range=None)
    old = old_scores(algo, golden)
    batch = golden.batch(old_log_prob=old, items_per_sample=2, advantage=torch.tensor([2.0, 2.0]))
    loss = algo.loss(golden.model(), batch)
    expected = double(GOLDEN_RATIO["mean"]).log().mean().exp()
    torch.testing.assert_close(loss.metrics["ratio/mean"], expected[None], rtol=1e-6, atol=0)
    assert loss.value.item() == pytest.approx(-2 * expected.item())


def test_the_clip_stops_updates_that_moved_far_enough(golden: Any) -> None:
    # the golden ratios are 1.2 % above 1
    model, old = golden.model(), old_scores(vgrpo(), golden)
    batch = golden.batch(old_log_prob=old, advantage=torch.ones(2))
    assert not gradient(vgrpo(clip_range=1e-2).loss(model, batch).value, model).any()
    assert (gradient(vgrpo(clip_range=2e-2).loss(model, batch).value, model) != 0).all()
    assert (gradient(vgrpo(clip_range=None).loss(model, batch).value, model) != 0).all()


def items(model: ImageModel, roll: Roll, algo: VGRPO, iteration: int = 3) -> TrainingItems:
    rollout = replace(roll(model, [1.0, -1.0, 0.5, -0.5]), groups=GROUPS)
    return algo.training_items(rollout, model, seed=0, iteration=iteration)


def test_a_group_shares_its_pairs_of_time_and_noise(linear: MakeModel, roll: Roll) -> None:
    found = items(linear(), roll, vgrpo())
    for shared in (found.t, found.eps):
        assert torch.equal(shared[0], shared[1])
        assert torch.equal(shared[2], shared[3])
        assert not torch.isclose(shared[0], shared[2]).any()
    assert len(found.eps[0].unique()) == found.eps[0].numel(), "each time has noise of its own"
    later = items(linear(), roll, vgrpo(), iteration=4)
    assert not torch.isclose(later.eps, found.eps).any()


def test_each_reduction_of_variance_can_be_left_out(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    full = items(model, roll, vgrpo())
    own_noise = items(model, roll, vgrpo(shared_noise=False))
    assert torch.equal(own_noise.t, full.t)
    assert not torch.isclose(own_noise.eps[0], own_noise.eps[1]).any()
    own_times = items(model, roll, vgrpo(UniformTimes(count=4, shared="sample")))
    assert torch.equal(own_times.eps, full.eps)
    assert not torch.isclose(own_times.t[0], own_times.t[1]).any()
    anywhere = items(model, roll, vgrpo(UniformTimes(count=4, stratified=False, shared="group")))
    assert torch.equal((full.t * 4).floor(), torch.arange(4.0).expand(4, 4))
    assert not torch.equal((anywhere.t * 4).floor(), torch.arange(4.0).expand(4, 4))
    assert torch.equal(anywhere.eps, full.eps)
    (batch,) = full.split(100)
    plain, weighted = (vgrpo(adaptive=a).log_likelihoods(model, batch) for a in (False, True))
    error = prediction_error(
        model.forward_process, batch, model.predict(batch.x, batch.t, batch.condition), "x"
    )
    scale = error.abs().flatten(1).mean(1)
    torch.testing.assert_close(plain, weighted * scale)


def test_of_equal_samples_shared_pairs_think_alike(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = roll(model, [1.0, -1.0, 0.5, -0.5])
    rollout = replace(rollout, latents=rollout.latents[:1].expand(4, -1, -1, -1), groups=GROUPS)

    @torch.no_grad()
    def spread(algo: VGRPO) -> float:
        made = algo.training_items(rollout, model, seed=0, iteration=0)
        (batch,) = made.split(100)
        by_sample = batch.per_sample(algo.log_likelihoods(model, batch))[0].view(2, 2)
        return float(by_sample.diff(dim=1).abs().max())

    assert spread(vgrpo()) == 0
    assert spread(vgrpo(shared_noise=False)) > 1e-3
    assert spread(vgrpo(UniformTimes(count=4, shared="sample"))) > 1e-3
