"""A network that is not transformers'."""

from torch import nn

SAYS = "model: is a Linear; what can be trained is a diffusers pipeline or a causal language model"


def given(model, tokenizer):
    return {"model": nn.Linear(2, 2)}
