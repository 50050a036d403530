"""A pair of a model and its tokenizer, as `Run.pipeline` returns it."""


def given(model, tokenizer):
    return {"model": (model, tokenizer), "tokenizer": None}
