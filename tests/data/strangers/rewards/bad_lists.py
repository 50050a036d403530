"""A list a sample."""

SAYS = "score 0 is [0.5]; a score is a number"


def scored(*_, **__):
    return [[0.5], [1.0], [0.0]]
