"""A class of a sampler."""

from rlfactory.dynamics.token import Token


class Mine(Token):
    """The token sampler under another name."""


def given(model, tokenizer):
    return {"dynamics": Mine}
