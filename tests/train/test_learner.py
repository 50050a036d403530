"""What is done with an iteration's samples, on a network of two numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.batch import Batch
from rlfactory.model.weight_sets import OLD
from rlfactory.reward.base import Reward, Samples
from rlfactory.rollout import Rollout
from rlfactory.train.components import Metrics
from rlfactory.train.guards.update_guard import GuardError
from rlfactory.train.trainer import Trainer

Loop = Callable[..., Trainer]
SGD = ["optimizer._target_=torch.optim.SGD", "~optimizer.betas", "~optimizer.eps"]
FREE = ["optimizer.weight_decay=0", "max_grad_norm=1e9"]


def weights(trainer: Trainer, name: str = "policy") -> list[float]:
    with trainer.components.model.weights(name):
        return [float(p.detach()) for p in trainer.components.model.weights.parameters.values()]


def rolled(trainer: Trainer, iteration: int = 0) -> tuple[Rollout, Metrics]:
    return trainer.score(trainer.sample(iteration))


def seen(trainer: Trainer) -> list[Batch]:
    """The batches that the algorithm is asked the loss of, from now on."""
    batches: list[Batch] = []
    algo = trainer.components.algo
    loss = algo.loss

    def listen(model: Any, batch: Batch) -> Loss:
        batches.append(batch)
        return loss(model, batch)

    algo.loss = listen  # type: ignore[method-assign]
    return batches


def learn(trainer: Trainer, rollout: Rollout | None = None) -> Metrics:
    return trainer.learner.learn(rollout or rolled(trainer)[0], 0)


@pytest.mark.parametrize(
    ("words", "fresh"),
    [
        (["algo=vgrpo"], [True, False]),
        (["algo=awm"], [True, False]),
        (["algo=awm", "updates_per_iteration=3"], [True, False, False]),
        (["algo=awm", "updates_per_iteration=1"], [True]),
        (["algo=awm", "algo.shortcut=false"], [False, False]),
        (["algo=vgrpo", "algo.shortcut=false"], [False, False]),
        (["algo=awm", "algo.behaviour=old"], [False, False]),
        (["algo=awm", "epochs=2"], [False, False, False, False]),
    ],
    ids=str,
)
def test_what_is_remembered_is_what_the_policy_will_have_moved_away_from(
    words: list[str], fresh: list[bool], loop: Loop
) -> None:
    trainer = loop(*words)
    batches = seen(trainer)
    learn(trainer)
    unknown = [
        batch.old_log_prob is None or bool(batch.old_log_prob.isnan().all()) for batch in batches
    ]
    assert unknown == fresh
    for batch, is_fresh in zip(batches, fresh, strict=True):
        assert is_fresh or (batch.old_log_prob is not None and not batch.old_log_prob.isnan().any())


@pytest.mark.parametrize("algo", ["awm", "vgrpo"])
def test_what_is_remembered_is_of_before_the_first_update(algo: str, loop: Loop) -> None:
    trainer = loop(f"algo={algo}", "regularizer=none", "epochs=2")
    batches = seen(trainer)
    before = loop(f"algo={algo}").components
    learn(trainer)
    for batch in batches:
        assert batch.old_log_prob is not None
        torch.testing.assert_close(
            batch.old_log_prob, before.algo.log_likelihoods(before.model, batch).detach()
        )


@pytest.mark.parametrize("algo", ["awm", "vgrpo"])
def test_the_shortcut_spares_evaluations_and_changes_nothing(algo: str, loop: Loop) -> None:
    short, long = (
        loop(f"algo={algo}", "regularizer=none", f"algo.shortcut={shortcut}")
        for shortcut in ("true", "false")
    )
    found = [learn(trainer) for trainer in (short, long)]
    assert weights(short) == pytest.approx(weights(long), abs=1e-7)
    assert weights(short) != weights(loop(f"algo={algo}"))
    spent = [
        trainer.components.model.evaluations.read_and_reset().forward for trainer in (short, long)
    ]
    assert spent == [6 * 12 + 24, 6 * 12 + 48]  # to draw twelve samples, and to remember
    assert found[0]["ratio/mean"] == pytest.approx(found[1]["ratio/mean"], abs=1e-9)


@pytest.mark.parametrize("algo", ["awm", "vgrpo", "grpo", "grpo_guard"])
def test_the_ratio_moves_after_the_first_update_alone(algo: str, loop: Loop) -> None:
    trainer = loop(f"algo={algo}", "regularizer=none", "algo.clip_range=0.5")
    batches, losses = seen(trainer), []
    listen = trainer.components.algo.loss
    trainer.components.algo.loss = lambda *asked: losses.append(listen(*asked)) or losses[-1]  # type: ignore
    learn(trainer)
    first, second = (loss.metrics["ratio/max_dev"] for loss in losses)
    assert len(batches) == 2
    assert first.max() < 1e-6
    assert second.max() > 1e-4


def test_the_policy_may_be_another_than_samples(loop: Loop) -> None:
    trainer = loop("algo=awm", "algo.behaviour=old", "regularizer=none", "old.schedule=constant")
    with torch.no_grad():
        trainer.components.model.weights.parameters["bias"] += 0.3
    losses: list[Loss] = []
    loss = trainer.components.algo.loss
    trainer.components.algo.loss = lambda *asked: losses.append(loss(*asked)) or losses[-1]  # type: ignore
    learn(trainer)
    assert losses[0].metrics["ratio/max_dev"].min() > 1e-4, "off the old policy from the start"


class Flat(Reward):
    """All pictures are worth the same, but those of the groups in `lively`."""

    media = "images"
    main = "shapes"

    def __init__(self, *lively: int) -> None:
        self.lively = lively

    def score(self, samples: Samples) -> dict[str, Tensor]:
        assert samples.images is not None
        value = samples.images.float().mean((1, 2, 3)) / 255
        groups = torch.tensor([int(group) in self.lively for group in samples.groups])
        return {"shapes": torch.where(groups, value, 0.5)}


ALL = [["algo=nft", "advantage=group"], ["algo=awm"], ["algo=vgrpo"], ["algo=grpo"]]


@pytest.mark.parametrize("words", [*ALL, ["algo=grpo", "regularizer=kl_v"]], ids=str)
@pytest.mark.parametrize("how", ["drop", "renormalise"])
def test_where_no_sample_can_teach_nothing_is_learned_and_the_run_goes_on(
    words: list[str], how: str, loop: Loop
) -> None:
    trainer = loop(*words, f"advantage.zero_variance={how}", "iterations=2", reward=Flat())
    before, logged = weights(trainer), []
    trainer.run(lambda iteration, metrics, rollout: logged.append(metrics))
    assert weights(trainer) == before
    assert trainer.learner.updates == 0
    assert [metrics["nfe/train"] for metrics in logged] == [0, 0]
    assert [metrics["nfe/sample"] for metrics in logged] == [6, 6]
    for metrics in logged:
        assert metrics["advantage/zero_groups"] == 1
        assert metrics["optimizer/lr"] > 0
        assert not {"loss/policy", "grad/norm", "advantage/std", "kl/reference"} & metrics.keys()


@pytest.mark.parametrize("words", ALL, ids=str)
def test_a_lively_group_teaches_alone(words: list[str], loop: Loop) -> None:
    options = [*words, "advantage.zero_variance=drop"]
    trainer = loop(*options, reward=Flat(1))
    rollout, metrics = rolled(trainer)
    assert rollout.groups.tolist() == [1] * 4
    assert rollout.loss_weight == pytest.approx(1 / 3)
    assert metrics["advantage/zero_groups"] == pytest.approx(2 / 3)
    before = weights(trainer)
    assert learn(trainer, rollout)["grad/norm"] > 0
    assert weights(trainer) != before


def test_passes_that_another_rank_needs_teach_nothing_and_are_not_counted(loop: Loop) -> None:
    trainers = [loop("algo=awm", "algo.shortcut=false") for _ in range(2)]
    hardware = trainers[1].components.hardware

    def padded(micro_batches: Any, padding: Any) -> Any:
        for micro_batch in micro_batches:
            yield from ((micro_batch, True), (micro_batch, False))

    hardware.pad_micro_batches = padded  # type: ignore[method-assign]
    counted = []
    for trainer in trainers:
        batches = seen(trainer)
        learn(trainer)
        counted.append((trainer.components.model.evaluations.read_and_reset(), len(batches)))
    (alone, few), (beside, many) = counted
    assert weights(trainers[0]) == weights(trainers[1])
    assert many > few
    assert beside == alone


@pytest.mark.parametrize("updates", [3, 8])
@pytest.mark.parametrize("algo", ["awm", "vgrpo", "grpo"])
def test_an_update_without_a_sample_is_none(algo: str, updates: int, loop: Loop) -> None:
    words = [f"algo={algo}", "prompts_per_iteration=6", f"updates_per_iteration={updates}"]
    for rows in ([4], [4, 9]):
        trainer = loop(*words)
        learn(trainer, rolled(trainer)[0][torch.tensor(rows)])
        assert trainer.learner.updates == len(rows)


@pytest.mark.parametrize("old", ["sampled", "recomputed"])
def test_an_update_without_an_edge_is_none(old: str, loop: Loop) -> None:
    """Of four leaves only the first below each node of the first split has an edge before it."""
    trainer = loop(
        *("algo=branch_grpo", "prompts_per_iteration=2", "group_size=4", "branches=4"),
        *("schedule.steps=4", "window.skip_last=0", "tree.splits=[0,1]"),
        "algo.skip_steps=[1,2,3]",
        *("updates_per_iteration=8", f"algo.old_log_probs={old}", "seed=1"),
    )
    batches = seen(trainer)
    assert learn(trainer)["update/skipped_no_signal"] == 8 - trainer.learner.updates
    assert [len(batch) for batch in batches] == [1] * (2 * 2)


def test_dropped_samples_count_in_the_mean_of_the_loss(loop: Loop) -> None:
    def moved(how: str) -> list[float]:
        words = ["algo=grpo", "updates_per_iteration=1", f"advantage.zero_variance={how}"]
        trainer = loop(*words, *SGD, *FREE, reward=Flat(0, 2))
        before = weights(trainer)
        learn(trainer)
        return [now - was for now, was in zip(weights(trainer), before, strict=True)]

    kept, dropped, alone = (moved(how) for how in ("keep", "drop", "renormalise"))
    assert dropped == pytest.approx(kept, rel=1e-3)
    assert alone == pytest.approx([1.5 * change for change in kept], rel=1e-3)
    assert all(abs(change) > 1e-4 for change in kept)


def test_the_weight_is_not_one_of_the_penalty(loop: Loop) -> None:
    def moved(weight: float, advantage: float) -> float:
        trainer = loop("algo=grpo", "regularizer=kl_v", "updates_per_iteration=1", *SGD, *FREE)
        rollout, _ = rolled(trainer)
        with torch.no_grad():
            trainer.components.model.weights.parameters["bias"] += 0.2
        trainer.components.algo.ratio_tolerance = None
        worth = torch.full((12,), advantage)
        before = weights(trainer)[1]
        learn(trainer, replace(rollout, loss_weight=weight, advantage=worth))
        return weights(trainer)[1] - before

    penalty = moved(1.0, 0.0)
    assert moved(0.25, 0.0) == pytest.approx(penalty)
    # the clip bounds what goes on, so it is the advantage that pulls back
    sign = 1.0 if abs(moved(1.0, 1.0) - penalty) > 1e-6 else -1.0
    whole, part = moved(1.0, sign) - penalty, moved(0.25, sign) - penalty
    assert abs(whole) > 1e-5
    assert part == pytest.approx(whole / 4, rel=1e-2)


@pytest.mark.parametrize(
    "words", [["algo=nft"], ["algo=awm"], ["algo=vgrpo"], ["algo=grpo_guard"]], ids=str
)
def test_micro_batches_change_nothing_but_rounding(words: list[str], loop: Loop) -> None:
    # for Guard's clip range rounding is a lot
    whole, parts = (
        loop(*words, "epochs=2", "regularizer=none", size)
        for size in ("micro_batch=99", "micro_batch=8")
    )
    for trainer in (whole, parts):
        trainer.components.algo.ratio_tolerance = None
        if words == ["algo=grpo_guard"]:
            trainer.components.algo.clip_range = 0.1  # type: ignore[attr-defined]
        learn(trainer)
        assert trainer.learner.updates == 4
    assert weights(whole) == pytest.approx(weights(parts), abs=2e-5)
    assert weights(whole) != weights(loop(*words))


def test_each_epoch_has_its_own_order(loop: Loop) -> None:
    trainer = loop("algo=awm", "epochs=2", "updates_per_iteration=1")
    batches = seen(trainer)
    learn(trainer)
    first, second = (batch.x0.flatten(1).sum(1).tolist() for batch in batches)
    assert first != second
    assert sorted(first) == sorted(second)


def test_the_old_policy_follows_where_an_algorithm_has_one(loop: Loop) -> None:
    trainer = loop("algo=nft", "old.schedule=constant", "old.decay=0.5")
    before = weights(trainer)
    metrics = learn(trainer)
    assert metrics["old/decay"] == 0.5
    between = [(a + b) / 2 for a, b in zip(before, weights(trainer), strict=True)]
    assert weights(trainer, OLD) == pytest.approx(between, abs=1e-6)


def test_an_update_that_overflowed_moves_nothing_and_is_no_update(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = loop("algo=nft", "old.decay=0.0", "updates_per_iteration=2")
    hardware, before = trainer.components.hardware, weights(trainer)
    norms = iter([None, 3.0])
    monkeypatch.setattr(hardware, "step", lambda *_: next(norms))
    metrics = learn(trainer)
    assert trainer.learner.updates == 1
    assert metrics["grad/norm"] == 3.0
    assert weights(trainer) == before


class Spoiled:
    """An algorithm's loss, NaN in some of its calls."""

    def __init__(self, trainer: Trainer, *calls: int) -> None:
        self.algo, self.calls, self.count = trainer.components.algo, calls, 0
        self.loss = self.algo.loss
        self.algo.loss = self  # type: ignore[assignment,method-assign]

    def __call__(self, model: Any, batch: Batch) -> Loss:
        loss = self.loss(model, batch)
        self.count += 1
        return replace(loss, value=loss.value * torch.nan) if self.count in self.calls else loss


def test_an_update_that_is_left_out_moves_nothing_and_is_no_update(loop: Loop) -> None:
    trainer = loop("algo=nft", "old.update=step", "old.decay=0.5")
    trainer.guard.non_finite = "skip"
    Spoiled(trainer, 1, 2)
    before = {name: weights(trainer, name) for name in ("policy", "ema", OLD)}
    metrics = learn(trainer)
    assert {name: weights(trainer, name) for name in before} == before
    assert trainer.learner.updates == 0
    assert not trainer.learner.has_moved
    assert all(p.grad is None for p in trainer.components.model.weights.parameters.values())
    assert not trainer.components.optimizer.state
    assert metrics["guard/skipped"] == 2
    assert not {"loss/policy", "grad/norm", "ema/decay", "old/decay"} & metrics.keys()


def test_the_first_update_that_is_made_is_the_one_that_must_replay(loop: Loop) -> None:
    trainer = loop("algo=grpo", "updates_per_iteration=3")
    trainer.guard.non_finite = "skip"
    Spoiled(trainer, 1)
    metrics = learn(trainer)
    assert metrics["ratio/first_max_dev"] < 1e-6
    assert trainer.learner.updates == 2
    assert trainer.learner.has_moved


def test_all_micro_batches_are_gone_through_and_the_first_fault_is_named(loop: Loop) -> None:
    trainer = loop("algo=grpo", "micro_batch=6", "updates_per_iteration=1")
    spoiled = Spoiled(trainer, 2, 3)
    with pytest.raises(GuardError, match="update 1, micro-batch 2; this update was not made"):
        learn(trainer)
    assert spoiled.count > 3, "other processes wait in each of them"


@pytest.mark.parametrize(
    "words", [["algo=vgrpo"], ["algo=awm", "algo.ratio=sum_first"], ["algo=vgrpo", "epochs=2"]]
)
def test_micro_batches_that_divide_samples_learn_the_same(words: list[str], loop: Loop) -> None:
    found = []
    for size in (100, 3, 1):
        trainer = loop(*words, f"micro_batch={size}", "times.count=4", *SGD, *FREE)
        found.append([*learn(trainer).items(), *enumerate(weights(trainer))])
    whole, *divided = (dict(numbers) for numbers in found)
    for numbers in divided:
        for name in (0, 1, "grad/norm", "ratio/mean", "ratio/max_dev", "loss/policy"):
            assert numbers[name] == pytest.approx(whole[name], rel=1e-4, abs=1e-7), name
