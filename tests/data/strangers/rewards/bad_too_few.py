"""A sample that was skipped."""

SAYS = "there came 2 of them; wanted are 3 numbers"


def scored(*_, **__):
    return [0.5, 1.0]
