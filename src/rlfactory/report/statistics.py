"""How sure we are of a few runs: intervals over seeds, and whether one method beats another.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021),
whose interquartile mean, stratified bootstrap and probability of improvement these are.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float] | None
RESAMPLES = 2000
FEWEST = 3
"""A bootstrap of fewer runs than this knows nothing that the runs don't say."""
_CHUNK = 1 << 20  # differences held at once, so that memory stays at about 10 MB


def mean_interval(values: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """The interval of the mean of `[N]` values by Student's t; None below two."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        return None
    mean = float(data.mean())
    reach = t_quantile(len(data) - 1, confidence) * float(data.std(ddof=1)) / math.sqrt(len(data))
    return mean - reach, mean + reach


def t_quantile(freedom: int, confidence: float = 0.95) -> float:
    """How many standard errors the two-sided interval reaches to either side."""
    # scipy.stats takes a second to import, and this is all that it would be asked
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def interquartile_mean(values: ArrayLike) -> Array:
    """The mean of `[..., N]` values without the lowest and the highest quarter, rounded down."""
    data = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    count = data.shape[-1]
    middle: Array = data[..., count // 4 : count - count // 4].mean(-1)
    return middle


def stratified_bootstrap(
    strata: Sequence[ArrayLike],
    statistic: Callable[[list[Array]], Array],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a statistic of several samples, each resampled by itself.

    The statistic maps samples `[R, N]`, one resample a row, to `[R]`. None where no sample has two
    values: there is nothing to resample.
    """
    data = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    longest = max(map(len, data), default=0)
    if longest < 2:
        return None
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // longest**2)
    counts = [min(rows, resamples - done) for done in range(0, resamples, rows)]
    drawn = np.concatenate([statistic(_resampled(data, count, rng)) for count in counts])
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def interquartile_interval(values: ArrayLike, *, resamples: int = RESAMPLES) -> Interval:
    """The bootstrap interval of an interquartile mean."""
    return stratified_bootstrap([values], lambda s: interquartile_mean(s[0]), resamples=resamples)


def probability_of_improvement(ours: Sequence[ArrayLike], theirs: Sequence[ArrayLike]) -> Array:
    """How probably a run of ours has more than one of theirs, a tie counting half.

    A sample `[..., N]` for each task; the mean over tasks.
    """
    chances = [_beats(np.asarray(x), np.asarray(y)) for x, y in zip(ours, theirs, strict=True)]
    mean: Array = np.mean(chances, axis=0)
    return mean


def improvement_interval(
    ours: Sequence[ArrayLike], theirs: Sequence[ArrayLike], *, resamples: int = RESAMPLES
) -> Interval:
    """Its interval, by a bootstrap of the runs of each task and each side."""
    tasks = len(ours)
    return stratified_bootstrap(
        [*ours, *theirs],
        lambda s: probability_of_improvement(s[:tasks], s[tasks:]),
        resamples=resamples,
    )


def paired_difference(ours: ArrayLike, theirs: ArrayLike) -> tuple[float, Interval]:
    """The mean of `ours - theirs`, `[N]` each in one order of seeds, and its t interval."""
    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    return float(difference.mean()), mean_interval(difference)


def _resampled(data: Sequence[Array], count: int, rng: np.random.Generator) -> list[Array]:
    return [stratum[rng.integers(len(stratum), size=(count, len(stratum)))] for stratum in data]


def _beats(x: Array, y: Array) -> Array:
    # -1, 0, 1 for worse, even, better become 0, 1/2, 1
    signs: Array = np.sign(x[..., :, None] - y[..., None, :])
    chances: Array = (signs.mean((-2, -1)) + 1) / 2
    return chances
