"""Several scores, one of them too short."""

SAYS = "length: there came 2 of them"


def scored(*_, **__):
    return {"scored": [1, 1, 1], "length": [3, 1]}
