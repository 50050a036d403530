"""An instance of an algorithm, made without the objects of a run."""

from rlfactory.algo.ppo import PPO


class Mine(PPO):
    """PPO under another name."""


def given(model, tokenizer):
    return {"algo": Mine(clip_range=0.1)}
