"""The direction is found where there is one, and owned up to where there is none."""

import math

import torch

from rlfactory.tools.inspect.analysis import (
    centred,
    contrast,
    good_minus_bad,
    group_means,
    separation,
)

GROUPS = torch.arange(16).repeat_interleave(8)


def drawn(merit: float) -> tuple[torch.Tensor, torch.Tensor]:
    """States that differ by prompt, by chance and, along the first axis, by score."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(128, generator=generator)
    prompts = 5 * torch.randn(16, 6, generator=generator)
    states = prompts[GROUPS] + torch.randn(128, 6, generator=generator)
    states[:, 0] += merit * scores
    # what a prompt earns on average must not count
    return states, scores + 3 * prompts[GROUPS, 1]


def test_it_is_found_beneath_what_differs_between_prompts() -> None:
    states, scores = drawn(3.0)
    direction = contrast(states, scores, GROUPS)
    assert direction is not None
    assert direction[0] / direction.norm() > 0.98
    assert separation(states, scores, GROUPS) > 0.95


def test_good_lies_one_above_bad() -> None:
    states, scores = drawn(1.0)
    direction = contrast(states, scores, GROUPS)
    assert direction is not None
    gap = good_minus_bad(states @ direction, scores, GROUPS)
    torch.testing.assert_close(gap, torch.tensor(1.0))


def test_where_there_is_none_separation_is_chance() -> None:
    assert abs(separation(*drawn(0.0), GROUPS) - 0.5) < 0.12


def test_scores_that_do_not_differ_within_prompts_give_none() -> None:
    states, _ = drawn(1.0)
    scores = GROUPS.float() / 3
    assert contrast(states, scores, GROUPS) is None
    assert math.isnan(separation(states, scores, GROUPS))


def test_means_of_groups() -> None:
    values, groups = torch.tensor([1.0, 3.0, 10.0]), torch.tensor([0, 0, 2])
    assert group_means(values, groups).tolist() == [2, 0, 10]
    assert centred(values, groups).tolist() == [-1, 1, 0]
