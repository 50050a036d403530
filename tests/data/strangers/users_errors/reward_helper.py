def score(text):
    return text.nothing


def right(completions, **columns):
    return [score(text) for text in completions]


SAYS = "return text.nothing\nAttributeError"
