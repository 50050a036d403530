"""The scores of a rollout: dropping samples without one, the metrics of both, the ratio check."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import group_index, group_std, group_sum, is_constant_group
from rlfactory.algo.ops.rollout_correction import mismatch_metrics
from rlfactory.reward.base import Samples
from rlfactory.reward.repetition import repeated_share
from rlfactory.rollout import Rollout
from rlfactory.train.metrics import MetricAccumulator, distinct, pairwise_distance
from rlfactory.train.scoring.reward_errors import REWARD_ERRORS
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import require


def samples_of(rollout: Rollout) -> Samples:
    """The fields of a rollout that rewards see."""
    tokens = rollout.tokens
    return Samples(
        prompts=rollout.prompts,
        metadata=rollout.metadata,
        groups=rollout.groups,
        images=rollout.images,
        texts=rollout.texts,
        ended=None if tokens is None else tokens.ended_on_cpu,
    )


def require_scored(scores: Mapping[str, Tensor], names: Sequence[str], max_failed: float) -> Tensor:
    """Which samples have all the named scores, `[B]` bool.

    Raises:
        TrainingError: more than `max_failed` (a share) of the samples lack one.
    """
    known = torch.stack([torch.isfinite(scores[name]) for name in names]).all(0)
    failed = 1 - known.float().mean().item()
    first_error, cause = REWARD_ERRORS.take()
    if failed > max_failed:
        reason = f" ({first_error})" if first_error and cause is None else ""
        raise TrainingError(
            f"{failed:.1%} of the samples got no score from reward {', '.join(names)}{reason}, more"
            f" than max_failed={max_failed:.1%} allows"
        ) from cause
    return known


def drop_unscored(rollout: Rollout, names: Sequence[str], max_failed: float) -> Rollout:
    """The samples that have all the named scores.

    Raises:
        TrainingError: more than `max_failed` of them lack one, or no sample has one of a name.
    """
    if not names:
        return rollout
    missing = [name for name in names if name not in rollout.rewards]
    if missing:
        raise TrainingError(
            f"advantage.weights names {', '.join(missing)}, and the reward gives no such score;"
            f" it gives {', '.join(rollout.rewards)}"
        )
    known = require_scored(rollout.rewards, names, max_failed)
    return rollout if known.all() else rollout[known.nonzero().flatten()]


def reward_metrics(rollout: Rollout, device: torch.device | None = None) -> dict[str, float]:
    """Of each score the mean, the population standard deviation, its mean within groups, the
    10 and 90 % quantiles, and the share of samples without it; and how diverse the samples are,
    compared on `device`.
    """
    metrics = _sample_metrics(rollout, device)
    for name, values in rollout.rewards.items():
        known = torch.isfinite(values)
        metrics |= {
            f"reward/{name}/mean": float(values[known].mean()),
            f"reward/{name}/std": float(values[known].std(unbiased=False)),
            f"reward/{name}/group_std": _mean_group_std(values[known], rollout.groups[known]),
            **_quantiles(f"reward/{name}", values[known]),
            f"reward/{name}/failed": 1 - float(known.float().mean()),
        }
    return metrics


def _quantiles(name: str, values: Tensor) -> dict[str, float]:
    """The scores between which 80 % of the samples lie; nothing where none has a score."""
    if not len(values):
        return {}
    low, high = values.double().quantile(torch.tensor([0.1, 0.9], dtype=torch.float64)).tolist()
    return {f"{name}/p10": low, f"{name}/p90": high}


def zero_variance_groups(rollout: Rollout, names: Sequence[str]) -> dict[str, float]:
    """`advantage/zero_groups`: the share of groups in which all samples have equal scores.

    Groups of one sample do not count; nothing where there are no others, or no score trains.
    """
    if not names:
        return {}
    member, size = group_index(rollout.groups)
    is_constant = torch.stack(
        [is_constant_group(rollout.rewards[name], rollout.groups) for name in names]
    ).all(0)
    # one value per group, from one per sample
    per_group = torch.zeros(len(size), dtype=torch.bool).index_put((member,), is_constant)
    counted = per_group[size > 1]
    return {"advantage/zero_groups": float(counted.float().mean())} if len(counted) else {}


def _sample_metrics(rollout: Rollout, device: torch.device | None) -> dict[str, float]:
    """How diverse the samples are, and how long; nothing where there are neither images nor texts,
    as in the gathered rollout of several ranks' images.
    """
    if rollout.images is None and rollout.texts is None:
        return {}
    if rollout.images is not None:
        return {"diversity/pairwise": pairwise_distance(rollout.images, rollout.groups, device)}
    tokens, texts = require(rollout.tokens, "tokens"), require(rollout.texts, "texts")
    return {
        "diversity/distinct_2": distinct(texts, 2),
        "text/repetition": fmean(repeated_share(text, 3) for text in texts),
        "text/length": rollout.mean_length,
        "text/ended": float(tokens.ended.float().mean()),
        **mismatch_metrics(tokens),
    }


def _mean_group_std(values: Tensor, groups: Tensor) -> float:
    """The population standard deviation within a group, averaged over the groups."""
    member, size = group_index(groups)
    # group_std has a value per sample; each group is to count once
    per_group = group_sum(group_std(values, groups), member, len(size)) / size
    return float(per_group.mean())


def check_initial_ratio(
    metrics: MetricAccumulator, tolerance: float | None, remedy: str = "precision=fp32"
) -> None:
    """Check that before the first update likelihoods are those recorded while sampling.

    Records the largest deviation of a ratio from 1 as `ratio/first_max_dev`. Does nothing where
    `tolerance` is None, as for algorithms without a ratio. `remedy` is what the error advises.

    Raises:
        TrainingError: it is larger than `tolerance`, so sampling and training disagree; or the
            algorithm's loss returned no ratios to check.
    """
    if tolerance is None:
        return
    if "ratio/max_dev" not in metrics:
        raise TrainingError(
            "the algorithm's loss returned no metric ratio/max_dev, which its ratio_tolerance"
            " limits; add ratio_metrics(ratio, clip_range) to the metrics, or set ratio_tolerance"
            " to None"
        )
    deviation = metrics.largest("ratio/max_dev")
    metrics.add("ratio/first_max_dev", deviation)
    if deviation > tolerance:
        raise TrainingError(
            f"before any update a ratio is off 1 by {deviation:.2e}, more than a tenth of the"
            f" clip range ({tolerance:.1e}): sampling and training disagree; try {remedy}"
        )
