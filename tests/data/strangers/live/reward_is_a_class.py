"""A class that is called, not an instance."""

SAYS = "reward: Judge is a class and no Reward; hand over an instance of it"


def given(model, tokenizer):
    class Judge:
        def __call__(self, completions, **columns):
            return [1.0 for _ in completions]

    return {"reward": Judge}
