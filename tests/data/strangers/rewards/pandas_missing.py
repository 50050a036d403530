"""A nullable column."""

import pandas as pd

EXPECTED = [1.0, None, 0.0]


def scored(*_, **__):
    return pd.Series([1, None, 0], dtype="Int64")
