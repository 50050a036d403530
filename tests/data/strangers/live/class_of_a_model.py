"""The class, not an instance."""

SAYS = "model: is the class GPT2LMHeadModel; hand over an instance"


def given(model, tokenizer):
    return {"model": type(model)}
