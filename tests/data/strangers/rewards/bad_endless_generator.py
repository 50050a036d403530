"""A generator that does not end."""

from itertools import count

SAYS = "there came 4 or more of them"


def scored(*_, **__):
    return count()
