"""A model without weights."""

import torch

SAYS = "without weights (on meta, or offloaded)"


def given(model, tokenizer):
    with torch.device("meta"):
        return {"model": type(model)(model.config)}
