"""A listener's class."""

from rlfactory.train.listeners import Listener

SAYS = "listeners: Listener is a class; hand over an instance"


def given(model, tokenizer):
    return {"listeners": [Listener]}
