"""The object of the library tokenizers."""

SAYS = "tokenizer: is a Tokenizer; hand over AutoTokenizer.from_pretrained(...)"


def given(model, tokenizer):
    return {"tokenizer": tokenizer.backend_tokenizer}
