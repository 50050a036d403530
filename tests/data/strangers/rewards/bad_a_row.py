"""One row for all samples."""

import numpy as np

SAYS = "there came a ndarray [1, 3]"


def scored(*_, **__):
    return np.zeros((1, 3))
