"""`.mean()` over all."""

import torch

SAYS = "there came a Tensor []; wanted are 3 numbers"


def scored(*_, **__):
    return torch.tensor(0.5)
