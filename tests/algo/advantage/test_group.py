"""Group-relative advantages as a rollout's: which scores train, how far, and who takes part."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import gdpo, group_advantages
from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

REWARDS = torch.tensor([1.0, 2, 3, 4, 0, 0, 1, 0])
SECOND = torch.tensor([10.0, 10, 30, 10, 5, 7, 7, 5])
GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
BOTH = {"main": 1.0, "second": 0.5}


def rollout_of(rewards: Mapping[str, Tensor], groups: Tensor = GROUPS) -> Rollout:
    count = len(groups)
    return Rollout(
        prompts=[f"prompt {g}" for g in groups.tolist()],
        metadata=[{} for _ in range(count)],
        groups=groups,
        index=torch.arange(count),
        rewards=rewards,
    )


def found(rewards: Tensor = REWARDS, **options: Any) -> Tensor:
    rollout = rollout_of({"main": rewards, "second": SECOND})
    return require(GroupAdvantage(**options)(rollout, "main").advantage, "advantages")


# Provenance: diffusion.md 1.8, each peer's own function.
FLOW_GRPO = [-1.341521, -0.447174, 0.447174, 1.341521, -0.577217, -0.577217, 1.731651, -0.577217]
GOLDEN: list[tuple[dict[str, Any], list[float]]] = [
    ({}, FLOW_GRPO),
    (
        {"std": "global"},
        [-1.064752, -0.354917, 0.354917, 1.064752, -0.177459, -0.177459, 0.532376, -0.177459],
    ),
    (
        {"unbiased": True, "eps": 1e-8},
        [-1.161895, -0.387298, 0.387298, 1.161895, -0.5, -0.5, 1.5, -0.5],
    ),
    (
        {"std": "global", "unbiased": True},
        [-0.995989, -0.331996, 0.331996, 0.995989, -0.165998, -0.165998, 0.497995, -0.165998],
    ),
    (
        {"std": "global", "eps": 1e-6, "eps_as": "floor"},
        [-1.064828, -0.354943, 0.354943, 1.064828, -0.177471, -0.177471, 0.532414, -0.177471],
    ),
    (
        {"aggregate": "gdpo", "weights": BOTH, "eps": 1e-6},
        [-1.262418, -0.569828, 1.016893, 0.815353, -0.834235, -0.059895, 1.728365, -0.834235],
    ),
]


@pytest.mark.parametrize(("options", "expected"), GOLDEN)
def test_golden(options: dict[str, Any], expected: list[float]) -> None:
    advantage = found(**options)
    torch.testing.assert_close(advantage, torch.tensor(expected), rtol=0, atol=2e-6)
    assert advantage.dtype == torch.float32


# where eps is small the peers' own numbers can't tell these apart
@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("eps_as", ["added", "floor"])
@pytest.mark.parametrize("aggregate", ["sum", "gdpo"])
def test_every_option_is_heard(unbiased: bool, eps_as: Any, aggregate: Any) -> None:
    options: dict[str, Any] = {"unbiased": unbiased, "eps": 0.7}
    rewards, groups = REWARDS.double(), GROUPS
    expected = group_advantages(rewards, groups, eps_as=eps_as, **options)
    if aggregate == "gdpo":
        expected = gdpo([rewards], [1.0], groups, **options)
    advantage = found(aggregate=aggregate, eps_as=eps_as, **options)
    torch.testing.assert_close(advantage, expected.float())


def test_gdpo_is_by_group_whatever_the_other_options() -> None:
    options: dict[str, Any] = {"aggregate": "gdpo", "weights": BOTH, "eps": 1e-6}
    other = found(mean="global", std="none", eps_as="added", **options)
    torch.testing.assert_close(other, found(**options))


def test_a_sum_is_of_rewards_and_normalised_after() -> None:
    advantage = found(weights=BOTH)
    torch.testing.assert_close(advantage, found(REWARDS + 0.5 * SECOND), rtol=0, atol=1e-6)
    assert not torch.allclose(advantage, found(), atol=0.1)


def test_a_sum_of_advantages_is_not_normalised_after() -> None:
    # MixGRPO, advantage_aggr: sum_k w_k A_k
    advantage = found(weights=BOTH, aggregate="advantages", clip=None)
    torch.testing.assert_close(advantage, found(clip=None) + 0.5 * found(SECOND, clip=None))


def test_scores_without_weight_do_not_train() -> None:
    assert GroupAdvantage().names("main") == ["main"]
    assert GroupAdvantage(weights=BOTH).names("main") == ["main", "second"]
    only = GroupAdvantage(weights={"second": 2.0, "main": 0.0})
    assert only.names("main") == ["second"]
    rollout = rollout_of({"main": torch.full((8,), torch.nan), "second": SECOND})
    torch.testing.assert_close(only(rollout, "main").advantage, found(2 * SECOND))


def test_advantages_are_clipped_on_both_sides() -> None:
    rewards = torch.tensor([0.0] * 99 + [1.0] + [0.0] + [1.0] * 99)
    rollout = rollout_of({"main": rewards}, torch.arange(200) // 100)
    for clip, low, high in ((5.0, -5.0, 5.0), (None, -9.9, 9.9)):
        advantage = require(GroupAdvantage(clip=clip)(rollout, "main").advantage, "advantages")
        assert advantage.max().item() == pytest.approx(high, abs=0.06)
        assert advantage.min().item() == pytest.approx(low, abs=0.06)


# Provenance: diffusion.md 1.11. AWM clamps to 5 and rescales to 1, Flow-Factory clamps to 1.
@pytest.mark.parametrize(
    ("options", "expected"),
    [({"clip": 5.0, "scale": 0.2}, [0.6, -1.0, 0.8]), ({"clip": 1.0}, [1.0, -1.0, 1.0])],
)
def test_golden_rescaled_or_clipped(options: dict[str, Any], expected: list[float]) -> None:
    rewards = torch.tensor([3.0, -7.0, 4.0])
    rollout = rollout_of({"main": rewards}, torch.zeros(3, dtype=torch.int64))
    advantage = GroupAdvantage(std="none", **options)(rollout, "main").advantage
    torch.testing.assert_close(advantage, torch.tensor(expected))


def test_a_soft_clip_keeps_the_order() -> None:
    rewards = torch.tensor([0.5, 2, 5, -8, 0.5])
    rollout = rollout_of({"main": rewards}, torch.zeros(5, dtype=torch.int64))
    advantage = GroupAdvantage(std="none", clip=3.0, clip_kind="soft")(rollout, "main").advantage
    torch.testing.assert_close(advantage, 3 * torch.tanh(rewards / 3))


# one third is not a binary fraction: its mean over three is not it again
IDLE = torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0, 1.0, 0.5])
OF_THREE = torch.tensor([7, 7, 7, 2, 2, 2])


@pytest.mark.parametrize(
    ("zero_variance", "index", "weight"),
    [("keep", [0, 1, 2, 3, 4, 5], 1.0), ("drop", [3, 4, 5], 0.5), ("renormalise", [3, 4, 5], 1.0)],
)
@pytest.mark.parametrize("aggregate", ["sum", "advantages", "gdpo"])
def test_zero_variance_groups(
    zero_variance: Any, index: list[int], weight: float, aggregate: Any
) -> None:
    rollout = rollout_of({"main": IDLE}, OF_THREE)
    whole = GroupAdvantage(aggregate=aggregate)(rollout, "main")
    advantage = GroupAdvantage(aggregate=aggregate, zero_variance=zero_variance)
    kept = advantage(rollout, "main")
    assert kept.index.tolist() == index
    assert kept.prompts == [f"prompt {OF_THREE[i]}" for i in index]
    assert kept.loss_weight == weight
    torch.testing.assert_close(kept.advantage, require(whole.advantage, "advantages")[kept.index])


def test_dropping_leaves_the_mean_over_all_as_it_was() -> None:
    slope = torch.randn(6, generator=torch.Generator().manual_seed(0))
    rollout = rollout_of({"main": IDLE}, OF_THREE)
    whole = require(GroupAdvantage()(rollout, "main").advantage, "advantages")
    kept = GroupAdvantage(zero_variance="drop")(rollout, "main")
    mean = (require(kept.advantage, "advantages") * slope[kept.index]).mean()
    torch.testing.assert_close(kept.loss_weight * mean, (whole * slope).mean())


def test_a_group_takes_part_if_any_of_its_scores_differ() -> None:
    rewards = {"main": IDLE, "second": torch.tensor([0.0, 1, 0, 0, 1, 0])}
    for aggregate in ("sum", "advantages", "gdpo"):
        advantage = GroupAdvantage(weights=BOTH, aggregate=aggregate, zero_variance="drop")
        assert len(advantage(rollout_of(rewards, OF_THREE), "main")) == 6


def test_constant_groups_have_an_advantage_over_the_batch_mean() -> None:
    advantage = GroupAdvantage(mean="global", std="global", zero_variance="drop")
    kept = advantage(rollout_of({"main": IDLE}, OF_THREE), "main")
    assert (len(kept), kept.loss_weight) == (6, 1.0)
    assert require(kept.advantage, "advantages")[:3].abs().min() > 0.1


@pytest.mark.parametrize("zero_variance", ["keep", "drop", "renormalise"])
@pytest.mark.parametrize("aggregate", ["sum", "advantages", "gdpo"])
def test_nothing_may_be_left(zero_variance: Any, aggregate: Any) -> None:
    advantage = GroupAdvantage(zero_variance=zero_variance, aggregate=aggregate)
    flat = advantage(rollout_of({"main": torch.full((8,), 0.3)}), "main")
    assert len(flat) == (8 if zero_variance == "keep" else 0)
    assert require(flat.advantage, "advantages").abs().sum() < 1e-6
    none = rollout_of({"main": torch.zeros(0)}, torch.zeros(0, dtype=torch.int64))
    assert len(advantage(none, "main")) == 0


def test_it_has_nothing_to_remember() -> None:
    assert GroupAdvantage().state_dict() == {}
    GroupAdvantage().load_state_dict({})


@pytest.mark.parametrize("zero_variance", ["keep", "drop"])
def test_those_who_branch_at_the_same_step_compare_among_themselves(zero_variance: Any) -> None:
    peers = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    rollout = rollout_of({"main": REWARDS})
    advantage = GroupAdvantage(zero_variance=zero_variance)
    got = advantage(replace(rollout, comparison_group=peers), "main")
    expected = advantage(replace(rollout, groups=peers), "main")
    assert (
        require(got.advantage, "advantages").tolist()
        == require(expected.advantage, "advantages").tolist()
    )
    assert len(got) == (8 if zero_variance == "keep" else 6)
    assert got.groups.tolist() == GROUPS.tolist()[: len(got) - 2] + [1, 1]
