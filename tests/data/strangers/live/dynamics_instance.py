"""A sampler that is made already."""

from rlfactory.dynamics.token import Token

SAYS = "hand over a class, of which the run makes one"


def given(model, tokenizer):
    return {"dynamics": Token(length=4)}
