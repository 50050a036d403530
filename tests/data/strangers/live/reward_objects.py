"""A partial, an object that is called, a lambda and an async function."""

import functools


def given(model, tokenizer):
    class Judge:
        def __call__(self, completions, **columns):
            return [float(len(text)) for text in completions]

    def scaled(completions, factor, **columns):
        return [factor * len(text) for text in completions]

    async def later(completions, **columns):
        return [1.0 for _ in completions]

    return {
        "reward": {
            "partial": functools.partial(scaled, factor=0.5),
            "object": (Judge(), 0.1),
            "lambda": lambda completions, **columns: [0.0] * len(completions),
            "later": later,
            "bound": Judge().__call__,
        }
    }
