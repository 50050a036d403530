"""The arithmetic of advantages, against each peer's own numbers."""

import pytest
import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import (
    ClipKind,
    EpsAs,
    StdScope,
    clip_advantages,
    gdpo,
    gdpo_sum,
    group_advantages,
    group_index,
    group_mean,
    group_std,
    is_constant_group,
    rloo_advantages,
    weighted_sum,
)

TWO_GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


def test_group_statistics_are_torchs() -> None:
    values = torch.randn(8, dtype=torch.double)
    for rows in (slice(0, 4), slice(4, 8)):
        mean, std = (
            group_mean(values, TWO_GROUPS)[rows],
            group_std(values, TWO_GROUPS)[rows],
        )
        torch.testing.assert_close(mean, values[rows].mean().expand(4))
        torch.testing.assert_close(std, values[rows].std(unbiased=False).expand(4))
    member, size = group_index(torch.tensor([7, 3, 7]))
    assert member.tolist() == [1, 0, 1]
    assert size.tolist() == [1, 2]


def test_a_group_is_constant_where_its_values_are_the_same_to_the_bit() -> None:
    values = torch.tensor([0.1, 0.5, 0.1, 0.1, 0.5, -7.0], dtype=torch.double)
    groups = torch.tensor([4, 1, 4, 4, 1, 9])
    assert is_constant_group(values, groups).tolist() == [True, True, True, True, True, True]
    values[2] += 1e-12
    assert is_constant_group(values, groups).tolist() == [False, True, False, False, True, True]
    values[1] = 0.1
    assert is_constant_group(values, groups).tolist() == [False, False, False, False, False, True]
    assert is_constant_group(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).tolist() == []


# Provenance: diffusion.md 1.8, computed by each peer's own function.
REWARDS = torch.tensor([1.0, 2, 3, 4, 0, 0, 1, 0])
GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
FLOW_GRPO_GLOBAL = [-1.064752, -0.354917, 0.354917, 1.064752]
FLOW_GRPO_GLOBAL += [-0.177459, -0.177459, 0.532376, -0.177459]
FLOW_GRPO_GROUP = [-1.341521, -0.447174, 0.447174, 1.341521]
FLOW_GRPO_GROUP += [-0.577217, -0.577217, 1.731651, -0.577217]
DANCE = [-1.161895, -0.387298, 0.387298, 1.161895, -0.5, -0.5, 1.5, -0.5]
VERL_OMNI = [-0.995989, -0.331996, 0.331996, 0.995989, -0.165998, -0.165998, 0.497995, -0.165998]

FF_SUM = [-1.064828, -0.354943, 0.354943, 1.064828, -0.177471, -0.177471, 0.532414, -0.177471]
SECOND = torch.tensor([10.0, 10, 30, 10, 5, 7, 7, 5])
FF_GDPO_SUM = [-1.630316, -0.735889, 1.313239, 1.052966]
FF_GDPO_SUM += [-1.077350, -0.077350, 2.232051, -1.077350]
FF_GDPO = [-1.262418, -0.569828, 1.016893, 0.815353, -0.834235, -0.059895, 1.728365, -0.834235]

Setting = tuple[StdScope, bool, float, EpsAs]
SETTINGS: list[Setting] = [
    ("global", False, 1e-4, "added"),
    ("group", False, 1e-4, "added"),
    ("group", True, 1e-8, "added"),
    ("global", True, 1e-4, "added"),
    ("global", False, 1e-6, "floor"),
]


@pytest.mark.parametrize(
    ("setting", "expected"),
    list(zip(SETTINGS, [FLOW_GRPO_GLOBAL, FLOW_GRPO_GROUP, DANCE, VERL_OMNI, FF_SUM], strict=True)),
    ids=["flow_grpo_global", "flow_grpo_group", "dance_mix", "verl_omni", "flow_factory"],
)
def test_golden(setting: Setting, expected: list[float]) -> None:
    found = advantages(REWARDS, GROUPS, setting)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=2e-6)


@pytest.fixture(params=SETTINGS, ids=str)
def setting(request: pytest.FixtureRequest) -> Setting:
    chosen: Setting = request.param
    return chosen


def advantages(rewards: Tensor, groups: Tensor, setting: Setting) -> Tensor:
    std, unbiased, eps, eps_as = setting
    options = {"std": std, "unbiased": unbiased, "eps": eps, "eps_as": eps_as}
    return group_advantages(rewards.double(), groups, **options).float()  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -7.7, 1e6])
def test_equal_rewards_have_zero_advantage(value: float, setting: Setting) -> None:
    found = advantages(torch.full((7,), value), torch.tensor([0, 0, 0, 1, 1, 1, 1]), setting)
    torch.testing.assert_close(found, torch.zeros(7), rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_a_sample_alone_in_its_group_has_zero_advantage(count: int, setting: Setting) -> None:
    found = advantages(torch.arange(count).float(), torch.arange(count), setting)
    assert torch.equal(found, torch.zeros(count))


def test_a_constant_group_among_others_has_zero_advantage(
    setting: Setting,
) -> None:
    found = advantages(torch.tensor([0.3, 0.3, 0.3, 0.0, 1.0]), GROUPS[[0, 0, 0, 4, 4]], setting)
    torch.testing.assert_close(found[:3], torch.zeros(3), rtol=0, atol=1e-5)
    assert found[4] > 0 > found[3]


def test_order_does_not_matter(setting: Setting) -> None:
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        advantages(REWARDS[order], GROUPS[order], setting),
        advantages(REWARDS, GROUPS, setting)[order],
    )


def test_names_of_groups_do_not_matter(setting: Setting) -> None:
    found = advantages(REWARDS, torch.where(GROUPS == 0, 1000, -3), setting)
    torch.testing.assert_close(found, advantages(REWARDS, GROUPS, setting))


def test_groups_of_unequal_size_sum_to_zero(setting: Setting) -> None:
    rewards = torch.randn(9, generator=torch.Generator().manual_seed(1))
    groups = torch.tensor([5, 2, 5, 5, 2, 9, 9, 9, 9])
    found = advantages(rewards, groups, setting)
    for group in (2, 5, 9):
        assert found[groups == group].sum().abs() < 1e-5


def test_only_rewards_within_a_group_are_compared() -> None:
    moved = torch.where(GROUPS == 1, REWARDS + 100, REWARDS)
    torch.testing.assert_close(group_advantages(moved, GROUPS), group_advantages(REWARDS, GROUPS))


def test_without_a_deviation_it_is_the_distance_from_the_mean() -> None:
    found = group_advantages(REWARDS, GROUPS, std="none", eps=7.0)
    torch.testing.assert_close(found, REWARDS - torch.tensor([2.5] * 4 + [0.25] * 4))


def test_compared_with_the_batch_groups_do_not_matter() -> None:
    found = group_advantages(REWARDS, GROUPS, mean="global", std="global", eps=1e-8)
    expected = (REWARDS - REWARDS.mean()) / REWARDS.std(unbiased=False)
    torch.testing.assert_close(found, expected)
    mixed = group_advantages(REWARDS, GROUPS, mean="global", std="group", eps=1e-8)
    own = torch.cat([g.std(unbiased=False).expand(4) for g in REWARDS.split(4)])
    torch.testing.assert_close(mixed, (REWARDS - REWARDS.mean()) / own)


def test_a_floor_leaves_a_larger_deviation_alone() -> None:
    exact = (REWARDS[:4] - 2.5) / REWARDS[:4].std(unbiased=False)
    for eps, expected in ((1.0, exact), (2.0, (REWARDS[:4] - 2.5) / 2)):
        found = group_advantages(REWARDS[:4], GROUPS[:4], eps=eps, eps_as="floor")
        torch.testing.assert_close(found, expected)


# Provenance: diffusion.md 1.8, Flow-Factory's gdpo before and after its normalisation of the batch.
def test_golden_gdpo() -> None:
    rewards, weights = [REWARDS.double(), SECOND.double()], [1.0, 0.5]
    for found, expected in (
        (gdpo_sum(rewards, weights, GROUPS), FF_GDPO_SUM),
        (gdpo(rewards, weights, GROUPS), FF_GDPO),
    ):
        torch.testing.assert_close(found.float(), torch.tensor(expected), rtol=0, atol=2e-6)


def test_gdpo_does_not_see_the_scale_of_a_reward() -> None:
    plain = gdpo([REWARDS.double(), SECOND.double()], [1.0, 0.5], GROUPS)
    scaled = gdpo([REWARDS.double() * 50 - 3, SECOND.double()], [1.0, 0.5], GROUPS)
    torch.testing.assert_close(scaled, plain)
    assert plain.mean().abs() < 1e-12
    assert plain.std(unbiased=False).item() == pytest.approx(1)


def test_equal_terms_have_equal_sums() -> None:
    values = [torch.full((999,), 0.1), torch.full((999,), 1 / 3), torch.full((999,), -7.7)]
    found = weighted_sum(values, [0.3, 1.7, -0.2])
    assert (found == found[0]).all()
    assert found[0].item() == pytest.approx(0.03 + 1.7 / 3 + 1.54)


# Provenance: diffusion.md 1.12, V-GRPO's soft clip with eta 3.
def test_golden_soft_clip() -> None:
    found = clip_advantages(torch.tensor([0.5, 2, 5, -8]), 3.0, "soft")
    expected = torch.tensor([0.495421, 1.748349, 2.793329, -2.971171])
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_a_clip_is_odd_bounded_and_gentle_near_zero(kind: ClipKind) -> None:
    values = torch.linspace(-20, 20, 81)
    found = clip_advantages(values, 4.0, kind)
    torch.testing.assert_close(found, -found.flip(0))
    assert found.abs().max() <= 4
    assert (found.diff() >= 0).all()
    torch.testing.assert_close(
        clip_advantages(values / 1000, 4.0, kind), values / 1000, rtol=1e-5, atol=0
    )
    inside = found[values.abs() < 10]
    assert bool((inside.diff() > 0).all()) == (kind == "soft")


def test_rloo_is_the_reward_minus_the_mean_of_the_others() -> None:
    rewards = torch.randn(9, generator=torch.Generator().manual_seed(2))
    groups = torch.tensor([5, 2, 5, 5, 2, 9, 9, 9, 9])
    found = rloo_advantages(rewards, groups)
    for i in range(9):
        others = (groups == groups[i]) & (torch.arange(9) != i)
        torch.testing.assert_close(found[i], rewards[i] - rewards[others].mean())


def test_rloo_gives_nothing_to_equals_nor_to_a_sample_alone() -> None:
    rewards = torch.tensor([0.1, 0.1, 0.1, 1e6])
    found = rloo_advantages(rewards, torch.tensor([4, 4, 4, 0]))
    torch.testing.assert_close(found, torch.zeros(4), rtol=0, atol=1e-7)


@pytest.mark.parametrize("size", [3, 6, 7, 12])
@pytest.mark.parametrize("std", ["group", "global", "none"])
def test_equal_rewards_have_an_advantage_of_exactly_0(size: int, std: str) -> None:
    rewards = torch.full((2 * size,), 0.1, dtype=torch.float64)
    groups = torch.arange(2 * size) % 2
    for mean in ("group", "global"):
        options = {"mean": mean, "std": std}
        assert not group_advantages(rewards, groups, **options).any()  # type: ignore[arg-type]
    assert not rloo_advantages(rewards, groups).any()
