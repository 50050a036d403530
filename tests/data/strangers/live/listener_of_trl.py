"""A callback of transformers."""

from transformers import TrainerCallback

SAYS = (
    "listeners: TrainerCallback is neither a Listener of rlfactory.train.listeners nor a function"
)


def given(model, tokenizer):
    return {"listeners": [TrainerCallback()]}
