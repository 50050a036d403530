def right(completions, **columns):
    for text in completions:
        yield text[1000]


SAYS = "yield text[1000]\nIndexError"
