"""The leave-one-out advantage."""

import torch

from rlfactory.algo.rloo import rloo_advantages


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
