"""How slowly a weight set follows the policy: its decay as a function of a clock's count t."""

import math
from typing import Literal

Schedule = Literal[
    "constant",
    "power",
    "linear",
    "piecewise_linear",
    "cosine",
    "warmup_cosine",
    "nft_0",
    "nft_1",
    "nft_2",
]


def power(t: int, decay: float, warmup: int = 10) -> float:
    """`min(d, (1 + t) / (w + t))`: short memory at first, to forget the start."""
    return min(decay, (1 + t) / (warmup + t))


def linear(t: int, decay: float, initial: float = 0.0, warmup: int = 100) -> float:
    """From `initial` to `decay` within `warmup`."""
    return decay if t >= warmup else initial + (decay - initial) * (t / warmup)


def piecewise_linear(t: int, decay: float, flat: int = 0, ramp: float = 0.001) -> float:
    """0 until `flat`, then `ramp` more with each count, up to `decay`."""
    return 0.0 if t < flat else min((t - flat) * ramp, decay)


def cosine(t: int, decay: float, initial: float = 0.9, total: int = 1000) -> float:
    """From `initial` to `decay` within `total`, along half a cosine."""
    return initial + (decay - initial) * (1 - math.cos(math.pi * min(t / total, 1.0))) / 2


def warmup_cosine(
    t: int, decay: float, initial: float = 0.9, warmup: int = 100, total: int = 1000
) -> float:
    """Linearly from 0 to `initial` within `warmup`, on to `decay` along half a cosine."""
    if t < warmup:
        return initial * (t / warmup)
    return cosine(t - warmup, decay, initial, total - warmup)


def nft(kind: Literal["nft_0", "nft_1", "nft_2"], t: int) -> float:
    """DiffusionNFT's `return_decay`, types 0 to 2; 0 follows the policy at once."""
    match kind:
        case "nft_0":
            return 0.0
        case "nft_1":
            return piecewise_linear(t, 0.5)
        case "nft_2":
            return piecewise_linear(t, 0.999, flat=75, ramp=0.0075)
