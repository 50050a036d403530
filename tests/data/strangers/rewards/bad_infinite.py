"""A logarithm of 0."""

SAYS = "score 1 is -inf; a score is finite"


def scored(*_, **__):
    return [0.0, float("-inf"), 1.0]
