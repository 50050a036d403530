"""The learning-rate schedule: linear warm-up and linear or cosine decay, as a factor."""

import math
from typing import Literal

Decay = Literal["linear", "cosine"]


def learning_rate_factor(
    iteration: int,
    *,
    iterations: int,
    warmup: int,
    final_scale: float,
    zero_first: bool,
    schedule: Decay = "linear",
) -> float:
    """The factor at an iteration, from 0.

    At iteration i it is `(i + 1) / warmup` during warm-up, then falls from 1 at `warmup` to
    `final_scale` at the last iteration: in a straight line, or with `schedule="cosine"` by half a
    period of a cosine (arXiv 1608.03983, eq. 5, without restarts). With `zero_first` warm-up is
    `i / warmup`, so that nothing is learned from the first iteration, and the decay ends one
    iteration after the last, as in the walkthrough that `experiment=gpt2_negative` follows.
    """
    if iteration < warmup:
        return (iteration + (0 if zero_first else 1)) / warmup
    last = iterations if zero_first else iterations - 1
    progress = min((iteration - warmup) / max(last - warmup, 1), 1.0)
    if schedule == "cosine":
        progress = (1 - math.cos(math.pi * progress)) / 2
    return 1 - (1 - final_scale) * progress
