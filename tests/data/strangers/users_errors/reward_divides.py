def right(completions, **columns):
    return [1 / 0 for _ in completions]


SAYS = "return [1 / 0 for _ in completions]\nZeroDivisionError: division by zero"
