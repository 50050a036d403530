"""A mapping without a reward."""

SAYS = "reward: is {}; leave it out for the default"


def given(model, tokenizer):
    return {"reward": {}}
