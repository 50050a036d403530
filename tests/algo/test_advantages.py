from typing import Literal

import pytest
import torch
from rlfactory.algo.advantages import (
    group_advantages,
    group_mean,
    group_std,
    membership,
    rloo_advantages,
)
from torch import Tensor

Scope = Literal["group", "global"]

# Provenance: diffusion.md 1.8, computed by each peer's own function.
REWARDS = torch.tensor([1.0, 2, 3, 4, 0, 0, 1, 0])
GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
FLOW_GRPO_GLOBAL = [-1.064752, -0.354917, 0.354917, 1.064752]
FLOW_GRPO_GLOBAL += [-0.177459, -0.177459, 0.532376, -0.177459]
FLOW_GRPO_GROUP = [-1.341521, -0.447174, 0.447174, 1.341521]
FLOW_GRPO_GROUP += [-0.577217, -0.577217, 1.731651, -0.577217]
DANCE = [-1.161895, -0.387298, 0.387298, 1.161895, -0.5, -0.5, 1.5, -0.5]
VERL_OMNI = [-0.995989, -0.331996, 0.331996, 0.995989, -0.165998, -0.165998, 0.497995, -0.165998]

SETTINGS: list[tuple[Scope, bool, float]] = [
    ("global", False, 1e-4),
    ("group", False, 1e-4),
    ("group", True, 1e-8),
    ("global", True, 1e-4),
]


@pytest.mark.parametrize(
    ("setting", "expected"),
    list(zip(SETTINGS, [FLOW_GRPO_GLOBAL, FLOW_GRPO_GROUP, DANCE, VERL_OMNI], strict=True)),
    ids=["flow_grpo_global", "flow_grpo_group", "dance_mix", "verl_omni"],
)
def test_golden(setting: tuple[Scope, bool, float], expected: list[float]) -> None:
    std, unbiased, eps = setting
    found = group_advantages(REWARDS, GROUPS, std=std, unbiased=unbiased, eps=eps)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=2e-6)
    assert found.dtype == torch.float32


@pytest.fixture(params=SETTINGS, ids=str)
def setting(request: pytest.FixtureRequest) -> tuple[Scope, bool, float]:
    chosen: tuple[Scope, bool, float] = request.param
    return chosen


def advantages(rewards: Tensor, groups: Tensor, setting: tuple[Scope, bool, float]) -> Tensor:
    std, unbiased, eps = setting
    return group_advantages(rewards, groups, std=std, unbiased=unbiased, eps=eps)


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -7.7, 1e6])
def test_equal_rewards_are_worth_nothing(value: float, setting: tuple[Scope, bool, float]) -> None:
    found = advantages(torch.full((7,), value), torch.tensor([0, 0, 0, 1, 1, 1, 1]), setting)
    torch.testing.assert_close(found, torch.zeros(7), rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_a_sample_alone_in_its_group_is_worth_nothing(
    count: int, setting: tuple[Scope, bool, float]
) -> None:
    found = advantages(torch.arange(count).float(), torch.arange(count), setting)
    assert torch.equal(found, torch.zeros(count))


def test_a_constant_group_among_others_is_worth_nothing(
    setting: tuple[Scope, bool, float],
) -> None:
    found = advantages(torch.tensor([0.3, 0.3, 0.3, 0.0, 1.0]), GROUPS[[0, 0, 0, 4, 4]], setting)
    torch.testing.assert_close(found[:3], torch.zeros(3), rtol=0, atol=1e-5)
    assert found[4] > 0 > found[3]


def test_order_does_not_matter(setting: tuple[Scope, bool, float]) -> None:
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        advantages(REWARDS[order], GROUPS[order], setting),
        advantages(REWARDS, GROUPS, setting)[order],
    )


def test_names_of_groups_do_not_matter(setting: tuple[Scope, bool, float]) -> None:
    found = advantages(REWARDS, torch.where(GROUPS == 0, 1000, -3), setting)
    torch.testing.assert_close(found, advantages(REWARDS, GROUPS, setting))


def test_groups_of_unequal_size_sum_to_zero(setting: tuple[Scope, bool, float]) -> None:
    rewards = torch.randn(9, generator=torch.Generator().manual_seed(1))
    groups = torch.tensor([5, 2, 5, 5, 2, 9, 9, 9, 9])
    found = advantages(rewards, groups, setting)
    for group in (2, 5, 9):
        assert found[groups == group].sum().abs() < 1e-5


def test_only_rewards_within_a_group_are_compared() -> None:
    moved = torch.where(GROUPS == 1, REWARDS + 100, REWARDS)
    torch.testing.assert_close(group_advantages(moved, GROUPS), group_advantages(REWARDS, GROUPS))


def test_group_statistics_are_torchs() -> None:
    values = torch.randn(8, dtype=torch.double)
    for rows in (slice(0, 4), slice(4, 8)):
        mean, std = group_mean(values, GROUPS)[rows], group_std(values, GROUPS)[rows]
        torch.testing.assert_close(mean, values[rows].mean().expand(4))
        torch.testing.assert_close(std, values[rows].std(unbiased=False).expand(4))
    member, size = membership(torch.tensor([7, 3, 7]))
    assert member.tolist() == [1, 0, 1]
    assert size.tolist() == [1, 2]


def test_rloo_is_the_reward_minus_the_mean_of_the_others() -> None:
    rewards = torch.randn(9, generator=torch.Generator().manual_seed(2))
    groups = torch.tensor([5, 2, 5, 5, 2, 9, 9, 9, 9])
    found = rloo_advantages(rewards, groups)
    for i in range(9):
        others = (groups == groups[i]) & (torch.arange(9) != i)
        torch.testing.assert_close(found[i], rewards[i] - rewards[others].mean())
    assert found.dtype == torch.float32


def test_rloo_gives_nothing_to_equals_nor_to_a_sample_alone() -> None:
    rewards = torch.tensor([0.1, 0.1, 0.1, 1e6])
    found = rloo_advantages(rewards, torch.tensor([4, 4, 4, 0]))
    torch.testing.assert_close(found, torch.zeros(4), rtol=0, atol=1e-7)
