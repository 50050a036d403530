"""At which times the forward-process algorithms noise a sample."""

import torch
from torch import Tensor


def stratified(draws: Tensor) -> Tensor:
    """One time in each of T equal bins of [0, 1), from uniform draws `[B, T]`."""
    bins = draws.shape[1]
    return (torch.arange(bins) + draws) / bins
