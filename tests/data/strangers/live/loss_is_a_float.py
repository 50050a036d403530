"""A loss that is a number."""

from rlfactory.algo.ppo import PPO


class Mine(PPO):
    """An algorithm that forgets the form of a loss."""

    def loss(self, model, batch):
        return super().loss(model, batch).value.item()


SAYS = "Mine.loss returned a float; it returns a Loss of rlfactory.algo.base"


def given(model, tokenizer):
    return {"algo": Mine}
