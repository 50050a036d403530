"""How sure a mean is: percentile bootstrap (Efron 1979), for one sample and for pairs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_CHUNK = 1 << 21  # indices drawn at once, so that memory stays at about 30 MB


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
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


def bootstrap_interval(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = 4000, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the mean of `[N]` values, NaN dropped; (NaN, NaN) below two values."""
    data = np.asarray(values, dtype=np.float64)
    data = data[~np.isnan(data)]
    if len(data) < 2:
        return float("nan"), float("nan")
    means = _resampled_means(data, resamples, np.random.default_rng(seed))
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def paired_interval(
    before: ArrayLike,
    after: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> tuple[float, float]:
    """Interval of the mean of `after - before`, `[N]` each; pairs with a NaN are dropped."""
    _, _, difference = _pairs(before, after)
    return bootstrap_interval(difference, confidence=confidence, resamples=resamples, seed=seed)


def paired_change(
    before: ArrayLike,
    after: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> Change:
    """What `paired_interval` is about, with the means; all NaN where no pair is complete."""
    first, second, difference = _pairs(before, after)
    low, high = bootstrap_interval(
        difference, confidence=confidence, resamples=resamples, seed=seed
    )
    return Change(
        before=_mean(first),
        after=_mean(second),
        difference=_mean(difference),
        low=low,
        high=high,
        count=len(difference),
    )


def _pairs(before: ArrayLike, after: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    first, second = (np.asarray(x, dtype=np.float64) for x in (before, after))
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"pairs need two equal [N], got {first.shape} and {second.shape}")
    kept = ~np.isnan(first) & ~np.isnan(second)
    return first[kept], second[kept], second[kept] - first[kept]


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _resampled_means(
    data: NDArray[np.float64], resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    rows = max(1, _CHUNK // len(data))
    counts = [min(rows, resamples - done) for done in range(0, resamples, rows)]
    parts = [data[rng.integers(len(data), size=(n, len(data)))].mean(1) for n in counts]
    return np.concatenate(parts)
