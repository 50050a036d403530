"""The loop, on a network of two numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.grpo import GRPO
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.dynamics.window import All
from rlfactory.hardware.local import Local
from rlfactory.model.base import ImageModel
from rlfactory.model.ema import EMASchedule
from rlfactory.model.weight_sets import EMA, OLD
from rlfactory.prompts.shapes import ShapesPrompts
from rlfactory.regularizer.base import Regularizer
from rlfactory.regularizer.coefficient import Fixed, PerStep, Proportional
from rlfactory.regularizer.kl_v import KLVelocity
from rlfactory.regularizer.none import NoRegularizer
from rlfactory.regularizer.sum import Sum
from rlfactory.reward.base import Reward, RewardError, Samples
from rlfactory.reward.combine import Combine
from rlfactory.rollout import Rollout
from rlfactory.train.components import Components, Metrics, NoProgress, RunStop, TrainingBudget
from rlfactory.train.sampling.image_sampler import ImageSampler
from rlfactory.train.sampling.trajectories import RolloutSpec
from rlfactory.train.scoring.async_scorer import Scorer
from rlfactory.train.trainer import Trainer
from rlfactory.utils.errors import TrainingError

BUDGET = TrainingBudget(
    seed=0,
    iterations=3,
    prompts_per_iteration=3,
    group_size=4,
    updates_per_iteration=2,
    micro_batch=100,
    epochs=1,
    max_grad_norm=1.0,
    max_failed=0.5,
)


EVERY_STEP = EMASchedule(
    schedule="power",
    decay=0.9,
    initial=0.0,
    warmup=10,
    flat=0,
    ramp=0.001,
    total=1000,
    clock="step",
    update="step",
    interval=1,
)


class Brightness(Reward):
    """How bright a picture is; the first `unknown` samples of a batch can't be scored."""

    media = "images"
    main = "brightness"

    def __init__(self, unknown: int = 0) -> None:
        self.unknown = unknown

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        assert samples.images is not None
        value = samples.images.float().mean((1, 2, 3)) / 255
        value[: self.unknown] = float("nan")
        return {"brightness": value}


@pytest.fixture
def trainer(linear: Callable[..., ImageModel]) -> Callable[..., Trainer]:
    def make(
        reward: Reward | None = None,
        regularizer: Regularizer[Any, Any, Any] | None = None,
        stop_kl: float | None = None,
        lr: float = 0.03,
        sample_batch: int = 12,
        stop_reward: float | None = None,
        branches: int = 1,
        ema: EMASchedule = EVERY_STEP,
        old: EMASchedule | None = None,
        **changes: object,
    ) -> Trainer:
        model, dynamics = linear(), FlowSDE(noise_level=0.7)
        averages = {EMA: ema} if old is None else {EMA: ema, OLD: old}
        for name in {*averages, *(regularizer.references if regularizer else ())}:
            model.weights.add(name)
        parts = Components(
            model=model,
            sampler=ImageSampler(
                model,
                dynamics=dynamics,
                sigmas=uniform_sigmas(5, 3.0),
                evaluation_sigmas=uniform_sigmas(5, 3.0),
                transitions=RolloutSpec(dynamics, window=All(skip_last=1), branches=branches),
                batch=sample_batch,
                advance=NoProgress().advance,
            ),
            algo=GRPO(dynamics, GroupAdvantage(), clip_range=0.2),
            regularizer=regularizer or NoRegularizer(),
            reward=reward or Brightness(),
            prompts=ShapesPrompts(),
            hardware=Local(device="cpu"),
            optimizer=torch.optim.Adam(list(model.weights.parameters.values()), lr=lr),
            stop=RunStop(kl=stop_kl, reward=stop_reward, patience=2),
            averages=averages,
        )
        return Trainer(parts, replace(BUDGET, **changes), NoProgress())  # type: ignore[arg-type]

    return make


def run(trainer: Trainer) -> list[Metrics]:
    logged: list[Metrics] = []
    trainer.run(lambda iteration, metrics, rollout: logged.append(metrics))
    return logged


def weights(trainer: Trainer) -> list[float]:
    return [float(p.detach()) for p in trainer.components.model.weights.parameters.values()]


def test_it_learns(trainer: Callable[..., Trainer]) -> None:
    rewards = [m["reward/brightness/mean"] for m in run(trainer(iterations=25))]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.05


def test_updates_are_counted_and_every_phase_is_timed(trainer: Callable[..., Trainer]) -> None:
    made = trainer()
    logged = run(made)
    assert (len(logged), made.learner.updates) == (3, 6)
    phases = ("sample", "score", "learn")
    assert all(m["time/iteration"] >= sum(m[f"time/{p}"] for p in phases) for m in logged)


def test_batching_changes_nothing_but_rounding(trainer: Callable[..., Trainer]) -> None:
    whole, parts = trainer(), trainer(micro_batch=7, sample_batch=5)
    run(whole)
    run(parts)
    assert weights(whole) == pytest.approx(weights(parts), abs=1e-6)


def test_samples_are_keyed_by_their_number(trainer: Callable[..., Trainer]) -> None:
    one, other = trainer(), trainer(sample_batch=5)
    a, b, c = one.sample(1), other.sample(1), one.sample(2)
    torch.testing.assert_close(a.latents, b.latents)
    assert not torch.allclose(a.latents, c.latents)


def test_a_group_may_begin_alike(trainer: Callable[..., Trainer]) -> None:
    def starts(branches: int) -> torch.Tensor:
        kept = trainer(branches=branches).sample(0).transitions
        assert kept is not None
        return kept.x[:, 0]  # every step is stochastic, so the first one holds the start

    alike, own = starts(4), starts(1)
    assert torch.equal(alike[0], alike[3])
    assert not torch.equal(alike[0], alike[4]), "another prompt begins elsewhere"
    assert not torch.equal(own[0], own[3])


def test_unscored_samples_are_left_out(trainer: Callable[..., Trainer]) -> None:
    made = trainer(Brightness(unknown=3))
    kept: list[Rollout] = []
    made.run(lambda iteration, metrics, rollout: kept.append(rollout))
    assert [len(rollout) for rollout in kept] == [9, 9, 9]
    assert all(bool(rollout.rewards["brightness"].isfinite().all()) for rollout in kept)


def test_each_coefficient_of_an_image_penalty_follows_its_divergence(
    trainer: Callable[..., Trainer],
) -> None:
    each_step = PerStep(value=1.0, target=1e-9, horizon=10, high=100.0)
    each_iteration = Proportional(value=1.0, target=1e-9, horizon=24)
    terms = {
        "reference": KLVelocity(coefficient=each_step),
        "average": KLVelocity(coefficient=each_iteration, reference="ema"),
        "still": KLVelocity(coefficient=Fixed(value=0.0)),
    }
    made = trainer(Brightness(), Sum(terms=terms))
    logged = run(made)
    # two updates an iteration, of which the very first begins at the reference; 12 samples
    assert each_step.value == pytest.approx(0.97 * 1.03**5)
    assert each_iteration.value == pytest.approx((1 + 0.2 * 12 / 24) ** 3)
    assert logged[-1]["kl/reference/coefficient"] == each_step.value
    assert logged[-1]["kl/average/coefficient"] == each_iteration.value
    for metrics in logged:
        assert metrics["kl/reference"] == metrics["kl/still"] > metrics["kl/average"] > 0
        assert metrics["kl/still/coefficient"] == 0
        assert "kl/sequence" not in metrics
        assert "loss/total" in metrics


def test_a_single_penalty_is_the_reference_whatever_its_weight_set(
    trainer: Callable[..., Trainer],
) -> None:
    coefficient = Proportional(value=1.0, target=1e-9, horizon=24)
    logged = run(trainer(None, KLVelocity(coefficient=coefficient, reference="ema")))
    assert [m["kl/coefficient"] for m in logged] == pytest.approx([1.1, 1.1**2, 1.1**3])
    assert all(m["kl/reference"] > 0 for m in logged)
    assert not any(name.startswith("kl/reference/") for name in logged[-1])


def test_a_term_takes_the_place_of_a_metric_of_its_name(
    trainer: Callable[..., Trainer],
) -> None:
    terms = {name: KLVelocity(coefficient=Fixed(value=0.0)) for name in ("approx", "other")}
    metrics = run(trainer(None, Sum(terms=terms)))[-1]
    assert metrics["kl/approx"] == metrics["kl/other"]


def test_no_penalty_measures_nothing(trainer: Callable[..., Trainer]) -> None:
    assert not {"kl/reference", "kl/coefficient", "loss/total"} & run(trainer())[-1].keys()


def test_a_divergence_that_is_large_enough_ends_the_run(trainer: Callable[..., Trainer]) -> None:
    def stopped(name: str) -> int:
        penalties = Sum(terms={name: KLVelocity(coefficient=Fixed(value=0.0))})
        return len(run(trainer(None, penalties, stop_kl=1e-12)))

    assert (stopped("reference"), stopped("other")) == (2, 3)


def test_too_many_failures_end_the_run(trainer: Callable[..., Trainer]) -> None:
    with pytest.raises(TrainingError, match=r"58\.3% .* max_failed=50\.0%"):
        run(trainer(Brightness(unknown=7)))


def test_a_gradient_that_explodes_ends_the_run(trainer: Callable[..., Trainer]) -> None:
    made = trainer()
    made.components.model.weights.parameters["bias"].data.fill_(float("nan"))
    with pytest.raises(TrainingError, match=r"optimizer\.lr|disagree"):
        run(made)


def test_time_is_up(trainer: Callable[..., Trainer]) -> None:
    assert len(run(trainer(max_minutes=1e-9))) == 1


def test_a_reward_that_is_high_enough_ends_the_run(trainer: Callable[..., Trainer]) -> None:
    assert len(run(trainer(iterations=9, stop_reward=0.0))) == 2
    assert len(run(trainer(iterations=3, stop_reward=1.0))) == 3


def test_each_epoch_takes_its_updates(trainer: Callable[..., Trainer]) -> None:
    made = trainer(epochs=3)
    run(made)
    assert made.learner.updates == 3 * 3 * 2


def test_no_epoch_begins_once_the_policy_has_moved(trainer: Callable[..., Trainer]) -> None:
    made = trainer(epochs=3, target_kl=1e-12)
    run(made)
    assert made.learner.updates == 3 * 2


def test_the_learning_rate_warms_up_and_decays(trainer: Callable[..., Trainer]) -> None:
    made = trainer(iterations=5, warmup=2, final_scale=0.1)
    rates: list[float] = []
    made.run(lambda *_: rates.append(made.components.optimizer.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.015, 0.03, 0.03, 0.0165, 0.003])


def test_the_average_follows_slowly(trainer: Callable[..., Trainer]) -> None:
    made = trainer(ema=replace(EVERY_STEP, decay=0.999))
    before = weights(made)
    run(made)
    with made.components.model.weights(EMA):
        average = weights(made)
    for start, middle, end in zip(before, average, weights(made), strict=True):
        assert min(start, end) <= middle <= max(start, end)
        assert end != start


def kept(trainer: Trainer, name: str) -> list[float]:
    with trainer.components.model.weights(name):
        return weights(trainer)


def test_a_set_moves_at_steps_or_after_iterations_by_its_own_clock(
    trainer: Callable[..., Trainer],
) -> None:
    after = replace(EVERY_STEP, schedule="nft_1", update="iteration")
    made = trainer(old=after)
    # two steps an iteration: 0.001 of the steps that were done by then
    assert [m["old/decay"] for m in run(made)] == [0.002, 0.004, 0.006]
    assert kept(made, OLD) == pytest.approx(weights(made), rel=0.02)
    assert kept(made, OLD) != weights(made)
    by_iteration = run(trainer(old=replace(after, clock="iteration")))
    assert [m["old/decay"] for m in by_iteration] == [0.001, 0.002, 0.003]
    # the first iteration's two steps: 2 / 11 and 3 / 12
    assert run(trainer())[0]["ema/decay"] == pytest.approx((2 / 11 + 3 / 12) / 2)


def test_a_set_that_forgets_at_once_is_the_policy(trainer: Callable[..., Trainer]) -> None:
    made = trainer(old=replace(EVERY_STEP, schedule="constant", decay=0.0, update="iteration"))
    run(made)
    assert kept(made, OLD) == pytest.approx(weights(made), rel=1e-6)


def test_a_set_stays_between_its_intervals(trainer: Callable[..., Trainer]) -> None:
    made = trainer(old=replace(EVERY_STEP, update="iteration", interval=2))
    assert ["old/decay" in m for m in run(made)] == [False, True, False]


class AboveGroup(Reward):
    """How much brighter a picture is than those of its group: a reward that must see all of it."""

    media = "images"
    main = "above"

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        assert samples.images is not None
        value = samples.images.double().mean((1, 2, 3))
        sizes = samples.groups.unique(return_counts=True)[1]
        assert sizes.tolist() == [BUDGET.group_size] * len(sizes), "a group was cut"
        means = torch.stack([value[samples.groups == g].mean() for g in samples.groups])
        return {"above": (value - means).float()}


@pytest.mark.parametrize("reward", [Brightness(), AboveGroup()])
def test_a_background_changes_nothing(trainer: Callable[..., Trainer], reward: Reward) -> None:
    """To the bit, with batches that cut groups."""
    found = []
    for background in (True, False):
        made = trainer(reward, sample_batch=5)
        made.components = replace(made.components, scorer=Scorer(background))
        logged = run(made)
        timeless = [
            {name: value for name, value in metrics.items() if name.split("/")[0] == "reward"}
            for metrics in logged
        ]
        found.append((timeless, weights(made)))
        assert all(metrics["time/score_hidden"] >= 0 for metrics in logged)
    assert found[0] == found[1]


def test_an_error_in_the_background_ends_the_run(trainer: Callable[..., Trainer]) -> None:
    class Broken(Brightness):
        def score(self, samples: Samples) -> dict[str, torch.Tensor]:
            raise RewardError("no such picture")

    class Odd(Brightness):
        def score(self, samples: Samples) -> dict[str, torch.Tensor]:
            return {"brightness": torch.zeros(3, 1)}

    for reward, said in (
        (Broken(), "no such picture"),
        (Odd(), r"Tensor \[3, 1\]; wanted are 4 numbers"),
    ):
        with pytest.raises(RewardError, match=said):
            run(trainer(reward, sample_batch=5))


def combined(*parts: Reward, **options: object) -> Combine:
    named = {f"part{i}": part for i, part in enumerate(parts)}
    return Combine(of=[*named], parts=named, **options)  # type: ignore[arg-type]


def test_failures_of_a_part_that_counts_are_those_of_the_sum(
    trainer: Callable[..., Trainer],
) -> None:
    kept: list[Rollout] = []
    made = trainer(combined(Brightness(), Brightness(unknown=3)))
    made.run(lambda iteration, metrics, rollout: kept.append(rollout))
    assert [len(rollout) for rollout in kept] == [9, 9, 9]
    with pytest.raises(TrainingError, match=r"58\.3% .* combined.* max_failed=50\.0%"):
        run(trainer(combined(Brightness(), Brightness(unknown=7))))
    watched = combined(Brightness(), Brightness(unknown=7), weights={"part1": 0})
    (logged, *_) = run(trainer(watched))
    assert logged["reward/part1/failed"] == pytest.approx(7 / 12)
    assert logged["reward/combined/failed"] == 0


def test_a_normalised_sum_trains_and_the_plain_one_is_logged(
    trainer: Callable[..., Trainer],
) -> None:
    kept: list[Rollout] = []
    logged: list[Metrics] = []
    made = trainer(combined(Brightness(), normalise="group", weights={"part0": 3}))

    def after(iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        kept.append(rollout)
        logged.append(metrics)

    made.run(after)
    for metrics, rollout in zip(logged, kept, strict=True):
        mean = metrics["reward/combined/mean"]
        assert mean == pytest.approx(3 * metrics["reward/part0/mean"])
        assert rollout.rewards["combined"].view(3, 4).mean(1).abs().max() < 1e-5


def test_groups_without_variance_are_logged(trainer: Callable[..., Trainer]) -> None:
    logged = run(trainer())
    assert all(m["advantage/zero_groups"] == 0 for m in logged)
