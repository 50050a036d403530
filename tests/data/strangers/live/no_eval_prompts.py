"""An empty split."""

SAYS = "eval_prompts: is empty; hand over at least one, or leave it out"


def given(model, tokenizer):
    return {"eval_prompts": []}
