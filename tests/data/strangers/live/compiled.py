"""A model after torch.compile, and a function as a listener."""

import torch


def given(model, tokenizer):
    seen = []
    return {
        "model": torch.compile(model),
        "listeners": lambda iteration: seen.append(iteration.done),
    }
