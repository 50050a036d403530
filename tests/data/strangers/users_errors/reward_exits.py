import sys


def right(completions, **columns):
    sys.exit(3)


SAYS = "sys.exit(3)\nSystemExit: 3"
