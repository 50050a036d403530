"""An array of texts."""

import numpy as np

SAYS = "score 0 is '0.5'"


def scored(*_, **__):
    return np.array(["0.5", "1", "0"])
