"""Numbers and names as the page writes them."""

import math

from rlfactory.report.report import Cell

NONE = "–"
MINUS = "\N{MINUS SIGN}"


def fixed(value: float | None, digits: int) -> str:
    """That many decimals, with a proper minus; a dash for what isn't there."""
    if value is None or math.isnan(value):
        return NONE
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


def spread(cell: Cell, digits: int) -> str:
    """The interval: `± half` where it lies evenly about the mean, its two ends otherwise."""
    if cell.mean is None or cell.low is None or cell.high is None:
        return ""
    if not (math.isfinite(cell.low) and math.isfinite(cell.high)):
        return ""
    below, above = cell.mean - cell.low, cell.high - cell.mean
    if abs(below - above) <= 0.5 * 10**-digits:
        return f"± {fixed((below + above) / 2, digits)}"
    return f"[{fixed(cell.low, digits)}, {fixed(cell.high, digits)}]"


def count(value: float | None) -> str:
    """A number of things in about three digits: 960, 5,400, 138 k, 1.2 M."""
    if value is None or math.isnan(value):
        return NONE
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(size, 1e4):
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}"


def plural(number: int, thing: str) -> str:
    """1 run, 2 runs."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
