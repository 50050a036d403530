"""A list of numpy's scalars."""

import numpy as np

EXPECTED = [0.5, 1.0, 0.0]


def scored(*_, **__):
    return [np.float32(0.5), np.int64(1), np.bool_(False)]
