"""A loss in the place of an algorithm."""

SAYS = "algo: function derives from no Algorithm"


def given(model, tokenizer):
    return {"algo": lambda ratio: ratio}
