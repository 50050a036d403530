"""A function without `return`."""

SAYS = "there came None; wanted are 3 numbers, one a sample"


def scored(*_, **__):
    return None
