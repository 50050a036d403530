"""The leave-one-out advantage."""

from torch import Tensor

from rlfactory.advantage.statistics import group_mean, membership


def rloo_advantages(rewards: Tensor, groups: Tensor) -> Tensor:
    """Reward minus the mean of the others of its group, `[B]`; 0 where it stands alone.

    RLOO (arXiv 2402.14740): the baseline does not depend on the sample, so it adds no bias.
    """
    member, size = membership(groups)
    # n / (n - 1) (r - mean of all) is r - mean of the others
    scale = size / (size - 1).clamp(min=1)
    return (rewards - group_mean(rewards, groups)) * scale[member]
