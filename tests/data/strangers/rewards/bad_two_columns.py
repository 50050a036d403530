"""The logits of a classifier with two labels."""

import torch

SAYS = "there came a Tensor [3, 2]; wanted are 3 numbers"


def scored(*_, **__):
    return torch.zeros(3, 2)
