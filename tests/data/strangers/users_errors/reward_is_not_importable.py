import json

VALUE = json.loads("")


def right(completions, **columns):
    return [1.0 for _ in completions]


SAYS = "VALUE = json.loads('')"
