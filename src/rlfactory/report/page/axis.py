"""Where an axis begins and ends, and the round numbers on it."""

import math
from collections.abc import Iterable, Sequence

AIR = 0.06  # of the span, above and below what is drawn
FAR = 1.5  # spans beyond the data that a paper's value may lie and still be drawn


def ticks(low: float, high: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers within the axis, at most `most` and evenly spaced."""
    step = 1.0 if whole else 10.0 ** (math.floor(math.log10(high - low)) - 2)
    factors = (2, 2.5, 2)  # 1, 2, 5, 10
    turn = 0
    while math.floor(high / step) - math.ceil(low / step) + 1 > most:
        step *= factors[turn % 3]
        turn += 1
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def tick_text(value: float, step: float) -> str:
    """As many decimals as the step needs."""
    if value != 0 and (abs(value) >= 1e5 or step < 1e-4):
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("-", "\u2212")
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{decimals}f}".replace("-", "\u2212")


def extent(
    means: Sequence[float], edges: Iterable[float], papers: Iterable[float]
) -> tuple[float, float]:
    """The axis for `means`, with as much of the bands and the paper's values as is no loss.

    An interval of two seeds can be a hundred times as wide as the curve: it is cut, at as much
    again on both sides. A paper's value far off is left out.
    """
    low, high = min(means), max(means)
    span = high - low or max(abs(high) * 0.1, 1e-6)
    edges = [min(max(e, low - span / 2), high + span / 2) for e in edges if math.isfinite(e)]
    near = [p for p in papers if low - FAR * span <= p <= high + FAR * span]
    low, high = min([low, *edges, *near]), max([high, *edges, *near])
    air = AIR * (high - low or span)
    return low - air, high + air
