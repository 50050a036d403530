"""Samples without a score: TRL's None, and NaN."""

EXPECTED = [None, None, 0.0]


def scored(*_, **__):
    return [None, float("nan"), 0]
