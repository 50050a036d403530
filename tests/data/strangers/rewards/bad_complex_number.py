"""A root of a negative number."""

SAYS = "score 1 is (6.1"


def scored(*_, **__):
    return [0.5, (-1) ** 0.5, 0.0]
