"""TRL's model with a value head, which wraps another."""

from torch import nn

SAYS = "model: is a AutoModelForCausalLMWithValueHead, which wraps a model"


def given(model, tokenizer):
    class AutoModelForCausalLMWithValueHead(nn.Module):
        def __init__(self):
            super().__init__()
            self.pretrained_model = model

    return {"model": AutoModelForCausalLMWithValueHead()}
