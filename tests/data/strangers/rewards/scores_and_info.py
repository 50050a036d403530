"""Scores and info, as ddpo-pytorch returns them."""

EXPECTED = [0.5, 1.0, 0.0]


def scored(*_, **__):
    return ([0.5, 1.0, 0.0], {"judge": "a"})
