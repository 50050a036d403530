"""A model in bfloat16, as large ones are loaded."""

import copy

import torch


def given(model, tokenizer):
    return {"model": copy.deepcopy(model).to(torch.bfloat16)}
