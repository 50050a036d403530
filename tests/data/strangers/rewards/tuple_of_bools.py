"""A tuple of comparisons."""

EXPECTED = [1.0, 0.0, 1.0]


def scored(*_, **__):
    return (True, False, True)
