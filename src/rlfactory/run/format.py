"""Numbers as people read them."""

import math


def number(value: float, *, sign: bool = False) -> str:
    """A score or a loss in about three significant digits; a dash for NaN."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else str(value)
    size = abs(value)
    plus = "+" if sign else ""
    if size != 0 and (size < 1e-3 or size >= 1e5):
        return format(value, f"{plus}.1e")
    decimals = 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return format(value, f"{plus}.{decimals}f")


def clock(seconds: float) -> str:
    """A duration as `m:ss`, or `h:mm:ss` from an hour on; `-:--` while it is unknown."""
    if not math.isfinite(seconds):
        return "-:--"
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def size(count: float) -> str:
    """A number of bytes in the largest unit of 1024 that leaves at least 1."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
