async def right(completions, **columns):
    raise ValueError("no judge answers")


SAYS = "no judge answers"
