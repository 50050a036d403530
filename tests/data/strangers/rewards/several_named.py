"""Several scores, one of the function's own name."""

import numpy as np

EXPECTED = [0.5, 1.0, 0.0]


def scored(*_, **__):
    return {"scored": [0.5, 1.0, 0.0], "length": np.array([3, 1, 2])}
