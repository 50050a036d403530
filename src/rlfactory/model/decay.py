"""How fast a weight set forgets: the decay of its moving average, as a function of the optimiser
step.
"""

from typing import Literal

Decay = Literal["none", "nft_1", "nft_2"]


def old_policy_decay(kind: Decay, step: int) -> float:
    """DiffusionNFT's three schedules for the sampling policy: none follows the policy at once."""
    match kind:
        case "none":
            return 0.0
        case "nft_1":
            return min(0.001 * step, 0.5)
        case "nft_2":
            return 0.0 if step < 75 else min(0.0075 * (step - 75), 0.999)


def power_decay(step: int, limit: float, warmup: float = 10.0) -> float:
    """`min(limit, (1 + s) / (w + s))`: short memory at first, so that an average forgets its
    start.
    """
    return min(limit, (1 + step) / (warmup + step))
