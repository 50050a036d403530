"""Statistics of scores and of runs: intervals, paired changes and comparisons of methods.

Over the prompts of one evaluation: percentile bootstrap of a mean (Efron, "Bootstrap Methods:
Another Look at the Jackknife", 1979), unpaired and paired.

Over the seeds of an experiment: Student's t interval, and the interquartile mean, stratified
bootstrap and probability of improvement of Agarwal et al., "Deep Reinforcement Learning at the Edge
of the Statistical Precipice" (2021).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float] | None
"""Lower and upper bound; None where there are too few values for one."""
CONFIDENCE = 0.95
"""Of every interval."""
RESAMPLES = 2000
MIN_RUNS = 3
"""Runs below which a bootstrap over seeds only repeats the values, so that none is shown."""
_MAX_DIFFERENCES = 1 << 20  # differences held at once, so that memory stays at about 10 MB


@dataclass(frozen=True)
class Change:
    """Means over the `count` complete pairs, and the interval of their mean difference."""

    before: float
    after: float
    difference: float
    low: float
    high: float
    count: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def bootstrap_interval(values: ArrayLike, *, resamples: int = 4000) -> tuple[float, float]:
    """Percentile interval of the mean of `[N]` values, NaN dropped; (NaN, NaN) below two values."""
    data = np.asarray(values, dtype=np.float64)
    scored = data[~np.isnan(data)]
    interval = stratified_bootstrap([scored], lambda s: s[0].mean(-1), resamples=resamples)
    return interval or (math.nan, math.nan)


def paired_change(before: ArrayLike, after: ArrayLike, *, resamples: int = 4000) -> Change:
    """The means of both and of their difference `after - before`, `[N]` each, with its interval.

    Pairs with a NaN are dropped; NaN without pairs.
    """
    first, second = (np.asarray(x, dtype=np.float64) for x in (before, after))
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"pairs need two equal [N], got {first.shape} and {second.shape}")
    kept = ~np.isnan(first) & ~np.isnan(second)
    first, second = first[kept], second[kept]
    # scores are float32: what is below its resolution is no difference
    is_rounding = np.abs(second - first) <= 2.0**-20 * np.maximum(np.abs(first), np.abs(second))
    difference = np.where(is_rounding, 0.0, second - first)
    low, high = bootstrap_interval(difference, resamples=resamples)
    old, new, mean = (float(x.mean()) if len(x) else math.nan for x in (first, second, difference))
    return Change(old, new, mean, low, high, len(difference))


def mean_interval(values: ArrayLike) -> Interval:
    """The interval of the mean of `[N]` values by Student's t; None below two."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        return None
    mean = float(data.mean())
    reach = t_quantile(len(data) - 1) * float(data.std(ddof=1)) / math.sqrt(len(data))
    return mean - reach, mean + reach


def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Standard errors from the mean to either end of a two-sided t interval."""
    # scipy.stats takes seconds to import, and this is all that is needed of it
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def interquartile_mean(values: ArrayLike) -> Array:
    """The mean of `[..., N]` values without the lowest and the highest quarter, rounded down."""
    data = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    count = data.shape[-1]
    return data[..., count // 4 : count - count // 4].mean(-1)


def stratified_bootstrap(
    strata: Sequence[ArrayLike],
    statistic: Callable[[list[Array]], Array],
    *,
    resamples: int = RESAMPLES,
) -> Interval:
    """Percentile interval of a statistic of several samples, each resampled by itself.

    The statistic maps samples `[R, N]`, one resample a row, to `[R]`. None where no sample has two
    values, so that there is nothing to resample.
    """
    data = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    longest = max(map(len, data), default=0)
    if longest < 2:
        return None
    rng = np.random.default_rng(0)
    rows = max(1, _MAX_DIFFERENCES // longest**2)
    drawn = []
    for count in (min(rows, resamples - done) for done in range(0, resamples, rows)):
        chosen = [x[rng.integers(len(x), size=(count, len(x)))] for x in data]
        drawn.append(statistic(chosen))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(drawn), [tail, 1 - tail])
    return float(low), float(high)


def interquartile_interval(values: ArrayLike, *, resamples: int = RESAMPLES) -> Interval:
    """The bootstrap interval of an interquartile mean."""
    return stratified_bootstrap([values], lambda s: interquartile_mean(s[0]), resamples=resamples)


def probability_of_improvement(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> Array:
    """The probability that a run of `first` scores above one of `second`, a tie counting half.

    Each has a sample `[..., N]` for each task; the result is the mean over tasks.
    """
    chances = []
    for x, y in zip(first, second, strict=True):
        signs: Array = np.sign(np.asarray(x)[..., :, None] - np.asarray(y)[..., None, :])
        chances.append((signs.mean((-2, -1)) + 1) / 2)  # worse, even, better: 0, 1/2, 1
    return np.mean(chances, axis=0)


def improvement_interval(
    first: Sequence[ArrayLike], second: Sequence[ArrayLike], *, resamples: int = RESAMPLES
) -> Interval:
    """The interval of `probability_of_improvement`: the runs of each task and side resampled."""
    tasks = len(first)
    return stratified_bootstrap(
        [*first, *second],
        lambda s: probability_of_improvement(s[:tasks], s[tasks:]),
        resamples=resamples,
    )
