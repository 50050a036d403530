"""GARDO: ranks, the gate and its share, and the reference that follows the policy."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rlfactory as rl
from rlfactory.algo.ops.step_replay import transition_items
from rlfactory.batch import Outputs
from rlfactory.config.memory.peak_memory import traits_of
from rlfactory.config.nfe import weight_sets
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.regularizer.base import KL
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.gardo import Gardo, Gate, doubt, gated
from rlfactory.regularizer.kl_v import KLVelocity
from rlfactory.regularizer.sum import Sum
from rlfactory.rollout import Rollout
from rlfactory.train.listeners import Listener
from rlfactory.utils.errors import TrainingError

Make = Callable[..., ImageModel]
Roll = Callable[..., Rollout]
SCORES = torch.tensor([0.9, 0.1, 0.5, 0.7])
OTHERS = [torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([-1.0, 0.0, 5.0, 2.0])]


def gardo(**options: Any) -> Gardo:
    return Gardo(coefficient=Fixed(value=0.5), others=["a", "b"], **options)


def scored(model: ImageModel, roll: Roll) -> Rollout:
    rewards = {"main": SCORES, "a": OTHERS[0], "b": OTHERS[1]}
    return replace(roll(model, [1.0, -1.0, 0.5, -0.5]), rewards=rewards)


def test_the_golden_doubt() -> None:
    """Provenance: tinnerhrhe/GARDO, train_sd3_grpo_gardo.py, run on these; its sign is reversed.

    Descending ranks of the score 1, 4, 3, 2; of the others 4, 3, 2, 1 and 4, 3, 1, 2: the published
    differences are -3, 1, 1.5, 0.5.
    """
    published = torch.tensor([-3.0, 1.0, 1.5, 0.5], dtype=torch.double)

    def descending(values: Tensor) -> Tensor:
        order = torch.sort(values, descending=True).indices
        ranks = torch.empty(len(values), dtype=torch.double)
        ranks[order] = torch.arange(1.0, len(values) + 1, dtype=torch.double)
        return ranks

    theirs = descending(SCORES) - (descending(OTHERS[0]) + descending(OTHERS[1])) / 2
    torch.testing.assert_close(theirs, published)
    torch.testing.assert_close(doubt(SCORES, OTHERS), -published / 4)


def test_the_gate_takes_the_most_doubtful() -> None:
    doubts = torch.tensor([0.9, -0.5, 0.1, 0.3, 0.0, -0.9])
    assert gated(doubts, 0.25).tolist() == [True, False, False, False, False, False]
    assert gated(doubts, 0.5).tolist() == [True, False, False, True, False, False]
    assert gated(torch.tensor([-0.1, 0.2]), 0.1).tolist() == [False, True]
    assert not gated(-torch.ones(3), 0.5).any()
    assert not gated(torch.zeros(3), 0.5).any()


def test_the_share_follows_the_doubt_and_is_restored() -> None:
    """Provenance: the published RiskCompensator, by hand."""
    gate = Gate(0.1, 0.02, 0.2)
    shares = []
    for mean in (0.5, 0.6, 0.55, 0.4, 0.7):
        gate.observe(mean)
        shares.append(gate.value)
    assert shares == pytest.approx([0.1, 0.11, 0.11, 0.099, 0.1089])
    gate.since, gate.is_far = 3, True
    other = Gate(0.1, 0.02, 0.2)
    other.load_state_dict(gate.state_dict())
    assert vars(other) == vars(gate)
    for _ in range(20):
        gate.observe(gate.window[-1] + 1)
    assert gate.value == 0.2
    assert len(gate.window) == 20


@pytest.mark.parametrize(("over", "weights"), [("gated", [4.0, 0, 0, 0]), ("all", [1.0, 0, 0, 0])])
def test_only_gated_samples_are_penalised(
    linear: Make, roll: Roll, over: Any, weights: list[float]
) -> None:
    model = linear()
    model.weights.add(REFERENCE)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter.add_(0.1)
    regularizer = gardo(over=over)
    rollout = regularizer.weigh(scored(model, roll), "main")
    assert rollout.penalty_weight is not None
    assert rollout.penalty_weight.tolist() == weights
    (batch,) = transition_items(rollout, model).split(100)
    outputs = Outputs(model.predict(batch.x, batch.t, batch.condition))
    penalty, found = regularizer.penalty(model, batch, outputs)
    plain = KLVelocity(coefficient=Fixed(value=0.5)).divergence(model, batch, outputs)
    expected = 0.5 * plain[batch.sample == 0].sum() * weights[0] / len(plain)
    torch.testing.assert_close(penalty, expected)
    torch.testing.assert_close(found[KL], plain.detach())


def test_the_published_code_gates_what_is_underrated(linear: Make, roll: Roll) -> None:
    rollout = gardo(gate="under", over="all").weigh(scored(linear(), roll), "main")
    assert rollout.penalty_weight is not None
    assert rollout.penalty_weight.tolist() == [0, 0, 1, 0]


def test_without_another_score_a_sample_is_not_gated(linear: Make, roll: Roll) -> None:
    rollout = scored(linear(), roll)
    unknown = {**rollout.rewards, "a": torch.tensor([1.0, torch.nan, 3.0, 4.0])}
    regularizer = gardo(gate="under", over="all", share=1.0, most=1.0)
    rollout = regularizer.weigh(replace(rollout, rewards=unknown), "main")
    assert rollout.penalty_weight is not None
    assert rollout.penalty_weight.tolist() == [0, 0, 1, 0]


def test_an_unknown_score_is_named(linear: Make, roll: Roll) -> None:
    with pytest.raises(TrainingError, match="has 'c'; the reward's scores are main, a, b"):
        Gardo(coefficient=Fixed(value=1.0), others=["c"]).weigh(scored(linear(), roll), "main")


def test_when_the_reference_follows() -> None:
    regularizer = gardo(every=3, threshold=0.1)
    asked = []
    for far in (0.0, 0.2, 0.0, 0.0, 0.0):
        regularizer.update_coefficients("step", {KL: far}, 1.0, 4)
        regularizer.update_coefficients("iteration", {KL: 9.0}, 1.0, 4)
        asked.append(regularizer.take_reset())
    assert asked == [False, True, False, False, True]
    assert not any(gardo(every=None).take_reset() for _ in range(40))


def test_a_sum_weighs_and_resets_by_its_term(linear: Make, roll: Roll) -> None:
    both = Sum(terms={"plain": KLVelocity(coefficient=Fixed(value=1.0)), "gardo": gardo(every=1)})
    assert both.weigh(scored(linear(), roll), "main").penalty_weight is not None
    assert both.take_reset()
    # a checkpoint has these: the share, what it follows, and the iterations since the reset
    names = {"kl/plain/coefficient", "kl/gardo/coefficient", "kl/gardo/gated"}
    assert both.coefficients.keys() == names


RUN = [
    *("hardware=cpu", "reward=shapes_biased", "regularizer=gardo", "regularizer.others=[shapes]"),
    *("regularizer.every=2", "iterations=4", "prompts_per_iteration=2", "group_size=4"),
    *("schedule.steps=3", "evaluation.prompts=1", "evaluation.preview_every=0"),
    *("checkpoint.background=false", "scoring.background=none"),
]


@pytest.mark.slow
@pytest.mark.parametrize("finetune", ["lora", pytest.param("full", marks=pytest.mark.whole)])
def test_a_paused_run_ends_with_the_same_bits(finetune: str, tmp_path: Path) -> None:
    kept: list[dict[str, Tensor]] = []

    class Keep(Listener):
        def after_training(self, summary: Any) -> None:
            del summary
            state = self.parts.model.weights.state_dict()
            kept.append({name: value.clone() for name, value in state.items()})

        def before_training(self, components: Any, done: int) -> None:
            del done
            self.parts = components

    words = [*RUN, f"model.finetune={finetune}"]
    rl.train(*words, f"run_dir={tmp_path / 'whole'}", listeners=[Keep()])
    rl.train(*words, f"run_dir={tmp_path / 'paused'}", until=3)
    rl.train(*words, f"run_dir={tmp_path / 'paused'}", listeners=[Keep()])
    whole, paused = kept
    assert whole.keys() == paused.keys()
    assert any(name.startswith("reference/") for name in whole)
    for name, value in whole.items():
        assert torch.equal(value, paused[name]), name
    moved = [n for n in whole if n.startswith("policy/")]
    same = [torch.equal(whole[n], whole[n.replace("policy", "reference")]) for n in moved]
    assert all(same)  # the fourth iteration ended with a reset


def test_bad_plans() -> None:
    with pytest.raises(PlanError, match="others: is empty"):
        plan_from_words("regularizer=gardo")
    given = ("regularizer=gardo", "regularizer.others=[shapes]")
    with pytest.raises(PlanError, match="evaluation.policy_fraction"):
        plan_from_words(*given, "evaluation.policy_fraction=0.5")


def test_with_adapters_the_reference_is_a_copy() -> None:
    given = ("regularizer.others=[shapes]", "model.finetune=lora")
    moving = plan_from_words("algo=nft", "regularizer=gardo", *given).config
    assert weight_sets(moving, traits_of(moving)) == {"old", "ema", "reference"}
    fixed = plan_from_words("algo=nft", "regularizer=kl_v", given[1]).config
    assert weight_sets(fixed, traits_of(fixed)) == {"old", "ema"}
