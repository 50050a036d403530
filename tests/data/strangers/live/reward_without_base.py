"""A class with `score` that derives from nothing."""

SAYS = "reward: Judge lacks media, main; derive it from rlfactory.reward.base.Reward"


def given(model, tokenizer):
    class Judge:
        def score(self, samples):
            return {"a": [1.0] * len(samples.texts)}

    return {"reward": Judge()}
