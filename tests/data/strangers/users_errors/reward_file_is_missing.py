def right(completions, **columns):
    return [float(open("nothing.txt").read()) for _ in completions]


SAYS = 'open("nothing.txt")'
