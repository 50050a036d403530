"""A Loss of a number."""

from rlfactory.algo.base import Loss
from rlfactory.algo.ppo import PPO


class Mine(PPO):
    """An algorithm that forgets the form of a loss."""

    def loss(self, model, batch):
        return Loss(1.0, None, {})


SAYS = "Loss(1.0, None, {})\nTypeError: value must be a scalar tensor, not a float"


def given(model, tokenizer):
    return {"algo": Mine}
