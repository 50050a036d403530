"""A function of other arguments."""

SAYS = "listeners: <lambda> is called with an Iteration alone: missing a required argument"


def given(model, tokenizer):
    return {"listeners": [lambda step, metrics: None]}
