"""A number."""

SAYS = "reward: 1.0 is no reward; allowed is a function, a Reward or an option"


def given(model, tokenizer):
    return {"reward": 1.0}
