"""A number beyond float32."""

SAYS = "score 0 is 1e+300; a score is finite"


def scored(*_, **__):
    return [1e300, 0.0, 0.0]
