"""An empty split."""

SAYS = "eval_prompts: is empty; leave it out"


def given(model, tokenizer):
    return {"eval_prompts": []}
