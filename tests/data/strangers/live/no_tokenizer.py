"""A model alone."""

SAYS = "model: is a language model without its tokenizer; hand over tokenizer= too"


def given(model, tokenizer):
    return {"tokenizer": None}
