"""The answer of a judge, unparsed."""

SAYS = "there came a str"


def scored(*_, **__):
    return "0.5 1.0 0.0"
