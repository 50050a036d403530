"""The mean instead of a score a sample."""

SAYS = "there came 0.5; wanted are 3 numbers"


def scored(*_, **__):
    return 0.5
