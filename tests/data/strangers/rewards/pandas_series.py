"""A column of a filtered frame, whose index has gaps and another order."""

import pandas as pd

EXPECTED = [0.5, 1.0, 0.0]


def scored(*_, **__):
    return pd.Series([0.5, 1.0, 0.0], index=[7, 2, 9])
