"""The head that LAION's predictor and ImageReward rate with: five layers, no activation between."""

from collections import OrderedDict
from itertools import pairwise

from torch import nn

INNER = (1024, 128, 64, 16, 1)
# the numbers between are dropouts, which act in training alone; here there are none to forget
_NAMES = ("0", "2", "4", "6", "7")


def rating_layers(width: int) -> nn.Sequential:
    """From embeddings `[B, width]` to `[B, 1]`, the layers named as in the published files."""
    sizes = zip(_NAMES, pairwise((width, *INNER)), strict=True)
    return nn.Sequential(OrderedDict((name, nn.Linear(*size)) for name, size in sizes))
