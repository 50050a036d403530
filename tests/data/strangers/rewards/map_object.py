"""`map` without `list`."""

EXPECTED = [0.5, 1.0, 0.0]


def scored(*_, **__):
    return map(float, ["0.5", "1", "0"])
