"""The tokenizer's name."""

SAYS = "tokenizer: is a str; hand over AutoTokenizer.from_pretrained(...)"


def given(model, tokenizer):
    return {"tokenizer": "gpt2"}
