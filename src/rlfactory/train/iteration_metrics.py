"""Metrics of an iteration: of samples, scores and updates; samples without a score are dropped."""

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rlfactory.algo.advantage.formulas import group_index, group_std, group_sum, is_constant_group
from rlfactory.reward.base import Samples
from rlfactory.rollout import GeneratedSamples, Rollout, Tokens
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import require, to_device
from rlfactory.utils.text import distinct, repeated_share

THUMBNAIL = 64
"""Pixels per side at most of the images that `pairwise_distance` compares."""
_CHUNK = 16  # images of which thumbnails are made at once: 0.2 GB of 1,024 pixels a side


def pairwise_distance(images: Tensor, groups: Tensor, device: torch.device | None = None) -> float:
    """The mean root-mean-square pixel distance, in [0, 1], of all pairs within a group; NaN where
    no group has two images.

    Of images larger than `THUMBNAIL` it is the distance of thumbnails: in full, 24 images of 512
    pixels would take as long as a sampling step.

    Args:
        images: `[B, 3, H, W]` uint8; a video's frames, `[B, F, 3, H, W]`, are compared one by one.
        groups: `[B]`, on the CPU.
        device: where thumbnails are made and compared; None: where the images are.
    """
    small = _thumbnails(images.flatten(1, -3), device or images.device)
    pixels = small.flatten(1)[to_device(groups.argsort(stable=True), small.device)]
    sizes = torch.bincount(torch.unique(groups, return_inverse=True)[1]).tolist()
    members = torch.split(pixels, sizes)
    distances = torch.cat([torch.pdist(rows.float() / 255) for rows in members])
    return float(distances.mean()) / float(pixels.shape[1] ** 0.5)


def _thumbnails(images: Tensor, device: torch.device) -> Tensor:
    """Images as they are, or the means over the pixels of each of `THUMBNAIL`² cells."""
    if max(images.shape[-2:]) <= THUMBNAIL:
        return images
    size = (min(images.shape[-2], THUMBNAIL), min(images.shape[-1], THUMBNAIL))
    chunks = (to_device(chunk, device) for chunk in torch.split(images, _CHUNK))
    return torch.cat([adaptive_avg_pool2d(chunk.float(), size) for chunk in chunks])


class MetricAccumulator:
    """Tensors of values by name, kept on their device, since reading a value waits for it."""

    def __init__(self) -> None:
        self._values: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        """Add a value."""
        self._values[name].append(torch.tensor([value]))

    def extend(self, values: Mapping[str, Tensor]) -> None:
        """Add a tensor of values under each name; each element counts once in the mean."""
        for name, tensor in values.items():
            self._values[name].append(tensor.reshape(-1))

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def latest(self, name: str) -> float | None:
        """The mean of the newest tensor of a name, None if there is none."""
        return self.latest_of(name).get(name)

    def latest_of(self, prefix: str) -> dict[str, float]:
        """`latest` of all names with a prefix."""
        newest = {k: v[-1] for k, v in self._values.items() if k.startswith(prefix)}
        return _read({name: values.float().mean() for name, values in newest.items()})

    def largest(self, name: str) -> float:
        """The largest value of a name."""
        return float(torch.cat(self._values[name]).max())

    def means(self) -> dict[str, float]:
        """The mean of each name, or the maximum of one with `max_` in it."""
        joined = {name: torch.cat(values) for name, values in self._values.items()}
        return _read(
            {name: v.max() if "max_" in name else v.float().mean() for name, v in joined.items()}
        )


def _read(scalars: Mapping[str, Tensor]) -> dict[str, float]:
    """The values of scalar tensors, with one wait for each device that they are on."""
    found = dict[str, float]()
    for device in {scalar.device for scalar in scalars.values()}:
        names = [name for name, scalar in scalars.items() if scalar.device == device]
        # exact: float64 holds every float32 and float64
        values = torch.stack([scalars[name].double() for name in names]).tolist()
        found |= zip(names, values, strict=True)
    return {name: found[name] for name in scalars}


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


def reward_metrics(rollout: Rollout) -> dict[str, float]:
    """Metrics of each score: mean, population standard deviation, its mean within groups, the
    10 and 90 % quantiles, and the share of samples without it; and of texts how diverse and how
    long they are.
    """
    metrics = _text_metrics(rollout)
    for name, values in rollout.rewards.items():
        known, place = torch.isfinite(values), f"reward/{name}"
        scores = values[known]
        metrics |= {
            f"{place}/mean": float(scores.mean()),
            f"{place}/std": float(scores.std(unbiased=False)),
            f"{place}/group_std": _mean_group_std(scores, rollout.groups[known]),
        }
        if len(scores):
            ends = torch.tensor([0.1, 0.9], dtype=torch.float64)
            low, high = scores.double().quantile(ends).tolist()
            metrics |= {f"{place}/p10": low, f"{place}/p90": high}
        metrics[f"{place}/failed"] = 1 - float(known.float().mean())
    return metrics


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


def _text_metrics(rollout: Rollout) -> dict[str, float]:
    if rollout.texts is None:
        return {}
    tokens = require(rollout.tokens, "tokens")
    return {
        "diversity/distinct_2": distinct(rollout.texts, 2),
        "text/repetition": fmean(repeated_share(text, 3) for text in rollout.texts),
        "text/length": rollout.mean_length,
        "text/ended": float(tokens.ended.float().mean()),
        **mismatch_metrics(tokens),
    }


def mismatch_metrics(tokens: Tokens) -> dict[str, float]:
    """`|log p - log q|` over the real tokens, its mean and maximum; nothing without an engine."""
    if tokens.engine_log_prob is None:
        return {}
    off = tokens.real(tokens.log_prob - tokens.engine_log_prob).abs()
    mean, most = torch.stack([off.mean(), off.max()]).tolist()
    return {"engine/log_prob_mismatch_mean": mean, "engine/log_prob_mismatch_max": most}


def _mean_group_std(values: Tensor, groups: Tensor) -> float:
    """The population standard deviation within a group, averaged over the groups."""
    member, size = group_index(groups)
    # group_std has a value per sample; each group is to count once
    per_group = group_sum(group_std(values, groups), member, len(size)) / size
    return float(per_group.mean())


def text_measures(samples: GeneratedSamples) -> dict[str, float]:
    """Metrics which tell that a reward of texts is exploited, by name; empty for images.

    `repetition`: the share of a text's word trigrams that occurred earlier in it, on average.
    `reference_log_prob`: nats a token, where a reference is kept.
    """
    if not samples.texts:
        return {}
    measured = {
        "repetition": fmean(repeated_share(text, 3) for text in samples.texts),
        "reference_log_prob": mean_per_token(samples.reference_log_prob, samples.lengths),
    }
    return {name: value for name, value in measured.items() if not math.isnan(value)}


def mean_per_token(values: Tensor | None, lengths: Tensor | None) -> float:
    """The mean over all tokens of `values` `[N]`, which are sums over responses; NaN without."""
    if values is None or lengths is None:
        return float("nan")
    return float(values.double().sum() / lengths.sum())
