"""A loss with its metrics in a tuple."""

from rlfactory.algo.ppo import PPO


class Mine(PPO):
    """An algorithm that forgets the form of a loss."""

    def loss(self, model, batch):
        return (super().loss(model, batch).value, {})


SAYS = "Mine.loss returned a tuple; it returns a Loss"


def given(model, tokenizer):
    return {"algo": Mine}
