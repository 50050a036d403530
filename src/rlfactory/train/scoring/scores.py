"""The scores of a rollout: their metrics, and dropping samples without one."""

import logging
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import group_index, group_std, group_sum, is_constant_group
from rlfactory.algo.ops.rollout_correction import mismatch_metrics
from rlfactory.reward.base import Samples
from rlfactory.reward.repetition import repeated_share
from rlfactory.rollout import Rollout
from rlfactory.train.metrics import distinct, pairwise_distance
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import require


class FirstError(logging.Handler):
    """Keeps the first error that is logged until it is taken."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._first: tuple[str, BaseException | None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception of a record, or its message if it has none."""
        if self._first is None:
            error = record.exc_info[1] if record.exc_info else None
            text = f"{type(error).__name__}: {error}" if error else record.getMessage()
            self._first = " ".join(text.split()), error

    def take(self) -> tuple[str, BaseException | None]:
        """The first error since the last call, as one line, and the exception if there was one;
        empty if there was none.
        """
        first, self._first = self._first, None
        return first or ("", None)


REWARD_ERRORS = FirstError()
"""The errors of rewards of this process, and of those that their subprocesses tell it."""
for _package in ("rlfactory.reward", "rlfactory.train.scoring"):
    logging.getLogger(_package).addHandler(REWARD_ERRORS)


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
