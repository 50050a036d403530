"""Statistics within groups."""

import torch

from rlfactory.advantage.statistics import constant, group_mean, group_std, membership

GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


def test_group_statistics_are_torchs() -> None:
    values = torch.randn(8, dtype=torch.double)
    for rows in (slice(0, 4), slice(4, 8)):
        mean, std = group_mean(values, GROUPS)[rows], group_std(values, GROUPS)[rows]
        torch.testing.assert_close(mean, values[rows].mean().expand(4))
        torch.testing.assert_close(std, values[rows].std(unbiased=False).expand(4))
    member, size = membership(torch.tensor([7, 3, 7]))
    assert member.tolist() == [1, 0, 1]
    assert size.tolist() == [1, 2]


def test_a_group_is_constant_where_its_values_are_the_same_to_the_bit() -> None:
    values = torch.tensor([0.1, 0.5, 0.1, 0.1, 0.5, -7.0], dtype=torch.double)
    groups = torch.tensor([4, 1, 4, 4, 1, 9])
    assert constant(values, groups).tolist() == [True, True, True, True, True, True]
    values[2] += 1e-12
    assert constant(values, groups).tolist() == [False, True, False, False, True, True]
    values[1] = 0.1
    assert constant(values, groups).tolist() == [False, False, False, False, False, True]
    assert constant(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).tolist() == []
