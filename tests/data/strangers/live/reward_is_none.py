"""No reward."""

SAYS = "reward: is None; leave it out for the default"


def given(model, tokenizer):
    return {"reward": None}
