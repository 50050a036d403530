"""A model that failed to load."""

SAYS = "model: is None; leave it out for the default"


def given(model, tokenizer):
    return {"model": None}
