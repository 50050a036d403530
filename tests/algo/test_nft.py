from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.nft import (
    NFT,
    AdvantageMode,
    apply_advantage_mode,
    implicit_losses,
    optimality_probability,
)
from rlfactory.algo.times import DiscreteTimes, Times, UniformTimes
from rlfactory.batch import Batch
from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD, WeightSets
from rlfactory.rollout import Condition, Rollout
from rlfactory.utils import rng
from rlfactory.utils.pytree import require

MakeModel = Callable[..., ImageModel]
Roll = Callable[..., Rollout]
# what conf/algo/nft.yaml chooses
GLOBAL = GroupAdvantage(std="global", clip=None)


SIGMAS = uniform_sigmas(6, 3.0)


def nft(times: Times | None = None, **options: float | str) -> NFT:
    return NFT(GLOBAL, times or UniformTimes(), SIGMAS, **options)


def images(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows).view(2, 1, 2, 2)


# Provenance: diffusion.md appendix A (inputs) and 1.10: DiffusionNFT's own lines, run on these.
X0 = images([[0.3, -0.8, 0.1, 1.2], [1, 0, -0.5, -0.4]])
EPS = images([[0.5, -0.2, 1, -1], [0.1, 0.7, -0.3, 0.2]])
T = torch.tensor([0.6, 0.3])
V = images([[0.1, 0.5, 0.8, -2], [-0.7, 0.9, 0.1, 0.5]])
V_OLD = V + 0.05 * images([[1, -1, 2, 0], [0, 1, 1, -2]])
ADVANTAGE = torch.tensor([2.0, -1.0])
GOLDEN_LOSSES = {
    1.0: ([0.084, 0.05], [0.108, 0.0825]),
    0.1: ([0.09387805, 0.0605], [0.09680488, 0.06386620]),
}
# An un-squeezed `r` of shape (B, 1) would average r apart from the losses: 0.398563 for beta 1.
GOLDEN_LOSS = {1.0: 0.40175, 0.1: 3.9318954}


class TableModel:
    """A network whose prediction is its only parameter."""

    forward_process = RectifiedFlow()
    device = torch.device("cpu")

    def __init__(self, v: Tensor, v_old: Tensor) -> None:
        self.v = nn.Parameter(v_old.clone())
        self.weights = WeightSets({"v": self.v})
        self.weights.add(OLD)
        self.v.data = v.clone()

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        return self.v * 1


def make_batch(advantage: Tensor = ADVANTAGE) -> Batch:
    return Batch(
        x=RectifiedFlow().noise(X0, EPS, T),
        t=T,
        x0=X0,
        sample=torch.arange(2),
        condition=Condition({}),
        advantage=advantage,
    )


def to_x0(v: Tensor) -> Tensor:
    return RectifiedFlow().to_x0(make_batch().x, v, T)


def loss_and_gradient(v_old: Tensor, advantage: Tensor, beta: float = 1.0) -> tuple[float, Tensor]:
    model = TableModel(V, v_old)
    value = nft(beta=beta).loss(model, make_batch(advantage)).value
    value.backward()
    assert model.v.grad is not None
    return value.item(), model.v.grad


def test_golden_optimality() -> None:
    torch.testing.assert_close(optimality_probability(ADVANTAGE, 5.0), torch.tensor([0.7, 0.4]))


@pytest.mark.parametrize("beta", GOLDEN_LOSSES)
def test_golden_losses_of_the_implicit_policies(beta: float) -> None:
    good, bad = implicit_losses(V, V_OLD, X0, to_x0, beta)
    expected = [torch.tensor(row, dtype=torch.double) for row in GOLDEN_LOSSES[beta]]
    torch.testing.assert_close([good, bad], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("beta", GOLDEN_LOSS)
def test_golden_loss(beta: float) -> None:
    loss = nft(beta=beta).loss(TableModel(V, V_OLD), make_batch())
    assert loss.value.item() == pytest.approx(GOLDEN_LOSS[beta], rel=1e-5)
    assert loss.metrics["loss/policy"].shape == (2,)
    assert loss.metrics["loss/policy"].mean().item() == pytest.approx(GOLDEN_LOSS[beta], rel=1e-5)
    moved = (V - V_OLD).flatten(1).pow(2).mean(1)
    torch.testing.assert_close(loss.metrics["kl/old"], moved)


def test_optimality_is_a_probability_symmetric_about_a_half() -> None:
    advantage = torch.linspace(-12, 12, 49)
    r = optimality_probability(advantage, 5.0)
    assert r.min() == 0
    assert r.max() == 1
    torch.testing.assert_close(r + optimality_probability(-advantage, 5.0), torch.ones(49))
    assert (r.diff() >= 0).all()


@pytest.mark.parametrize("beta", [1.0, 0.1])
def test_at_the_old_policy_the_value_does_not_see_the_reward_but_the_gradient_does(
    beta: float,
) -> None:
    best, worst = torch.tensor([5.0, 5.0]), torch.tensor([-5.0, -5.0])
    value, gradient = loss_and_gradient(V, best, beta)
    for advantage in (worst, ADVANTAGE, torch.zeros(2)):
        other, found = loss_and_gradient(V, advantage, beta)
        assert other == pytest.approx(value, rel=1e-6)
        weight = 2 * optimality_probability(advantage, 5.0) - 1
        torch.testing.assert_close(found, weight.view(2, 1, 1, 1) * gradient, atol=1e-6, rtol=1e-5)


def test_an_average_sample_has_no_gradient_at_the_old_policy() -> None:
    _, gradient = loss_and_gradient(V, torch.zeros(2))
    torch.testing.assert_close(gradient, torch.zeros_like(V), rtol=0, atol=1e-7)


def test_a_good_sample_draws_the_policy_to_it_and_a_bad_one_drives_it_off() -> None:
    batch = make_batch()
    error = to_x0(V) - X0
    for advantage, sign in ((5.0, 1), (-5.0, -1)):
        _, gradient = loss_and_gradient(V, torch.full((2,), advantage))
        moved = to_x0(V - 1e-3 * gradient) - X0
        change = moved.flatten(1).pow(2).mean(1) - error.flatten(1).pow(2).mean(1)
        assert (sign * change < 0).all()
    assert batch.replayed is None


def test_the_normaliser_and_the_old_policy_get_no_gradient() -> None:
    v, v_old = V.clone().requires_grad_(True), V_OLD.clone()
    good, _ = implicit_losses(v, v_old, X0, to_x0, 1.0)
    good.sum().backward()
    error = (to_x0(V) - X0).double()
    scale = error.flatten(1).abs().mean(1).view(2, 1, 1, 1)
    # d/dv of mean (x - t v - x0)^2 / w with w fixed
    expected = 2 * error * -T.view(2, 1, 1, 1) / 4 / scale
    torch.testing.assert_close(v.grad, expected.float(), rtol=1e-5, atol=1e-7)


def test_a_perfect_prediction_is_finite() -> None:
    v = (EPS - X0).requires_grad_(True)
    losses = implicit_losses(v, v.detach(), X0, to_x0, 1.0)
    sum(losses).sum().backward()
    assert torch.isfinite(losses[0]).all()
    assert torch.isfinite(v.grad).all()


def test_items_noise_each_sample_at_stratified_times(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = roll(model, [1.0, -1.0, 0.5])
    (batch,) = (
        nft(UniformTimes(count=4)).training_items(rollout, model, seed=0, iteration=3).split(100)
    )
    assert len(batch) == 12
    assert batch.sample.tolist() == [i for i in range(3) for _ in range(4)]
    assert torch.equal((batch.t.view(3, 4) * 4).floor(), torch.arange(4.0).expand(3, 4))
    assert torch.equal(batch.x0, rollout.latents[batch.sample])
    t = batch.t.view(-1, 1, 1, 1)
    eps = (batch.x - (1 - t) * batch.x0) / t
    assert len({round(value, 3) for value in eps.flatten().tolist()}) > 40
    assert batch.replayed is None
    assert NFT.behaviour == OLD, "the old policy samples"


def test_items_of_a_sample_depend_on_its_number_and_the_iteration_alone(
    linear: MakeModel, roll: Roll
) -> None:
    model = linear()
    rollout = roll(model, [1.0, -1.0, 0.5])
    algo = nft(UniformTimes(count=2))
    whole = algo.training_items(rollout, model, seed=0, iteration=3)
    some = algo.training_items(rollout[torch.tensor([2, 0])], model, seed=0, iteration=3)
    assert torch.equal(some.eps, whole.eps[[2, 0]])
    assert not torch.equal(algo.training_items(rollout, model, seed=0, iteration=4).eps, whole.eps)
    assert not torch.equal(algo.training_items(rollout, model, seed=1, iteration=3).eps, whole.eps)


def test_default_times_are_those_of_the_first_releases(linear: MakeModel, roll: Roll) -> None:
    """Bit for bit: four strata, from the sample's own stream of draws."""
    rollout = roll(linear(), [1.0, -1.0, 0.5])
    draws = rng.uniform(7, "times", [3], rollout.index.tolist(), [4])
    expected = (torch.arange(4) + draws) / 4
    assert torch.equal(nft().training_items(rollout, linear(), seed=7, iteration=3).t, expected)


def test_times_may_be_the_schedules(linear: MakeModel, roll: Roll) -> None:
    rollout = roll(linear(), [1.0, -1.0, 0.5])
    times = DiscreteTimes(count=3, fraction=1.0, shared="group")
    (batch,) = nft(times).training_items(rollout, linear(), seed=0, iteration=0).split(100)
    assert set(batch.t.tolist()) <= set(SIGMAS[:-1].tolist())
    of_group = {g: batch.t.view(3, 3)[rollout.groups == g] for g in rollout.groups.tolist()}
    assert all(torch.equal(rows, rows[:1].expand_as(rows)) for rows in of_group.values())


def test_the_time_shift_moves_times_to_the_noisy_end(linear: MakeModel, roll: Roll) -> None:
    model = linear()
    rollout = roll(model, [1.0, -1.0])
    flat = nft().training_items(rollout, model, seed=0, iteration=0).t
    moved = nft(UniformTimes(shift=3.0)).training_items(rollout, model, seed=0, iteration=0).t
    torch.testing.assert_close(moved, 3 * flat / (1 + 2 * flat))


def test_advantages_keep_the_batchs_scale_and_are_an_error_where_missing(
    linear: MakeModel, roll: Roll
) -> None:
    rewards = torch.tensor([1.0, 2, 3, 4, 0, 0, 1, 0])
    rollout = Rollout(
        prompts=[],
        metadata=[],
        groups=torch.arange(8) // 4,
        index=torch.arange(8),
        rewards={"main": rewards},
    )
    found = require(nft().compute_advantages(rollout, "main").advantage, "advantages")
    # Provenance: diffusion.md 1.8, flow_grpo global
    assert found[0].item() == pytest.approx(-1.064752, abs=2e-6)
    model = linear()
    with pytest.raises(ValueError, match="advantages"):
        nft().training_items(
            replace(roll(model, [1.0]), advantage=None), model, seed=0, iteration=0
        )


# Provenance: diffusion.md 1.10 names the modes; what is left of each advantage follows from them
GRADED: dict[AdvantageMode, list[float]] = {
    "all": [-7.0, -1.0, 0.0, 2.0, 9.0],
    "positive_only": [0.0, 0.0, 0.0, 2.0, 9.0],
    "negative_only": [-7.0, -1.0, 0.0, 0.0, 0.0],
    "one_only": [0.0, 0.0, 0.0, 1.0, 1.0],
    "binary": [-1.0, -1.0, 0.0, 1.0, 1.0],
}


def test_every_mode_is_tested() -> None:
    assert set(GRADED) == set(get_args(AdvantageMode))


@pytest.mark.parametrize("mode", GRADED)
def test_modes_of_advantages(mode: AdvantageMode) -> None:
    assert apply_advantage_mode(torch.tensor(GRADED["all"]), mode).tolist() == GRADED[mode]


@pytest.mark.parametrize("mode", GRADED)
def test_the_advantage_mode_selects_samples(mode: AdvantageMode) -> None:
    def gradient(advantage: Tensor, mode: AdvantageMode) -> Tensor:
        model = TableModel(V, V_OLD)
        nft(advantage_mode=mode).loss(model, make_batch(advantage)).value.backward()
        return require(model.v.grad, "a gradient")

    found = gradient(ADVANTAGE, mode)
    torch.testing.assert_close(
        found, gradient(apply_advantage_mode(ADVANTAGE, mode), "all"), rtol=0, atol=0
    )
    same = torch.equal(found, gradient(ADVANTAGE, "all"))
    assert same is (mode == "all")


def test_the_old_policys_prediction_is_passed_to_the_regularizer() -> None:
    outputs = nft().loss(TableModel(V, V_OLD), make_batch()).outputs
    assert torch.equal(outputs.by_weight_set[OLD], V_OLD)
    assert not outputs.by_weight_set[OLD].requires_grad
    assert outputs.prediction.requires_grad
