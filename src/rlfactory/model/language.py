"""Finding a causal language model and its tokenizer, fit for a rollout."""

from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.activations import NewGELUActivation

from rlfactory.model.hub import ModelError, explained
from rlfactory.model.pipeline import no_bars
from rlfactory.zoo.models import resolve


def load_language_model(path: str) -> tuple[PreTrainedModel, Any]:
    """The network in float32 without dropout, and its tokenizer, which pads on the left."""
    with explained(path, "a language model") as locate, no_bars():
        place = locate(resolve(path, "config.json"))
        tokenizer = AutoTokenizer.from_pretrained(place, padding_side="left")
        network = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    if tokenizer.eos_token is None:
        raise ModelError(
            f"model.path={path}: its tokenizer has no end of text, so no response could end;"
            " set eos_token in its tokenizer_config.json"
        )
    # responses are padded by explicit masks, so the end of text can serve as padding too
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    disable_dropout(network)
    fuse_activations(network)
    return network, tokenizer


def disable_dropout(network: nn.Module) -> None:
    """Set every dropout to 0: with it a replayed token would be less or more likely by chance."""
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def fuse_activations(network: nn.Module) -> None:
    """GPT-2's GELU in one pass over memory; transformers writes the same formula out in eight."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, NewGELUActivation):
                setattr(module, name, nn.GELU(approximate="tanh"))
