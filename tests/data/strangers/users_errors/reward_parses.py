import json


def right(completions, **columns):
    return [json.loads(text) for text in completions]


SAYS = "return [json.loads(text) for text in completions]\nJSONDecodeError"
