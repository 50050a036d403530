"""What a rollout was worth: its scores, the samples that have none, and what to log of both."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from rlfactory.advantage.statistics import constant, group_std, group_sum, membership
from rlfactory.nest import present
from rlfactory.reward.base import Samples
from rlfactory.reward.repetition import repeated_share
from rlfactory.rollout import Rollout
from rlfactory.run.diversity import distinct, pairwise_distance
from rlfactory.run.tally import Tally


class TrainingError(RuntimeError):
    """A run that must stop; the message says why and what to try."""


def samples_of(rollout: Rollout) -> Samples:
    """What a reward sees of a rollout."""
    return Samples(
        prompts=rollout.prompts,
        metadata=rollout.metadata,
        groups=rollout.groups,
        images=rollout.images,
        texts=rollout.texts,
    )


def require_scored(scores: Mapping[str, Tensor], names: Sequence[str], max_failed: float) -> Tensor:
    """Which samples have every score that is named, `[B]`; an error where too many lack one."""
    known = torch.stack([torch.isfinite(scores[name]) for name in names]).all(0)
    failed = 1 - known.float().mean().item()
    if failed > max_failed:
        raise TrainingError(
            f"{failed:.1%} of the samples got no score from reward {', '.join(names)}, more than"
            f" max_failed={max_failed:.1%} allows; see log.txt for the reward's own errors"
        )
    return known


def scored(rollout: Rollout, names: Sequence[str], max_failed: float) -> Rollout:
    """The samples that have every score that trains; an error where too many lack one."""
    missing = [name for name in names if name not in rollout.rewards]
    if missing:
        raise TrainingError(
            f"advantage.weights names {', '.join(missing)}, and the reward gives no such score;"
            f" it gives {', '.join(rollout.rewards)}"
        )
    known = require_scored(rollout.rewards, names, max_failed)
    return rollout if known.all() else rollout[known.nonzero().flatten()]


def reward_metrics(rollout: Rollout) -> dict[str, float]:
    """Mean, deviation, mean deviation within a group and share of failures of each score; and
    diversity.
    """
    metrics = _sample_metrics(rollout)
    for name, values in rollout.rewards.items():
        known = torch.isfinite(values)
        metrics |= {
            f"reward/{name}/mean": float(values[known].mean()),
            f"reward/{name}/std": float(values[known].std(unbiased=False)),
            f"reward/{name}/group_std": _group_deviation(values[known], rollout.groups[known]),
            f"reward/{name}/failed": 1 - float(known.float().mean()),
        }
    return metrics


def zero_groups(rollout: Rollout, names: Sequence[str]) -> dict[str, float]:
    """The share of groups whose samples all have the same scores; nothing where none has two."""
    member, size = membership(rollout.groups)
    alike = torch.stack([constant(rollout.rewards[name], rollout.groups) for name in names]).all(0)
    of_group = torch.zeros(len(size), dtype=torch.bool).index_put((member,), alike)[size > 1]
    return {"advantage/zero_groups": float(of_group.float().mean())} if len(of_group) else {}


def _sample_metrics(rollout: Rollout) -> dict[str, float]:
    """How different the samples are, and how long; nothing where neither is known."""
    if rollout.images is None and rollout.texts is None:
        return {}
    if rollout.images is not None:
        return {"diversity/pairwise": pairwise_distance(rollout.images, rollout.groups)}
    tokens, texts = present(rollout.tokens, "tokens"), present(rollout.texts, "texts")
    return {
        "diversity/distinct_2": distinct(texts, 2),
        "text/repetition": fmean(repeated_share(text, 3) for text in texts),
        "text/length": rollout.mean_length,
        "text/ended": float(tokens.ended.float().mean()),
    }


def _group_deviation(values: Tensor, groups: Tensor) -> float:
    """Population deviation within a group, averaged over the groups."""
    member, size = membership(groups)
    each = group_sum(group_std(values, groups), member, len(size)) / size
    return float(each.mean())


def require_replay(tally: Tally, tolerance: float | None) -> None:
    """Before the first update a replayed step must be as likely as when it was drawn."""
    if tolerance is None:
        return
    deviation = tally.largest("ratio/max_dev")
    tally.add("ratio/first_max_dev", deviation)
    if deviation > tolerance:
        raise TrainingError(
            f"before any update a ratio is off 1 by {deviation:.2e}, more than a tenth of the"
            f" clip range ({tolerance:.1e}): sampling and training disagree; try float32 and"
            " equal batch sizes"
        )
