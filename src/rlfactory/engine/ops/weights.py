"""A language model's weights in use as a plain transformers model: adapters merged, no critic."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.pipelines.loading import no_bars


@contextmanager
def plain_weights(model: CausalLM) -> Iterator[dict[str, Tensor]]:
    """The network's tensors by the names of a network without adapters, which are merged within
    the `with`. They are not copied.
    """
    merged = nullcontext() if model.lora is None else model.lora.merged()
    with merged, torch.no_grad():
        yield {
            name.replace(".base_layer.", "."): tensor
            for name, tensor in model.network.state_dict().items()
            if ".lora_" not in name
        }


def save_plain(model: CausalLM, folder: Path) -> None:
    """Write the weights in use, configuration and tokenizer as a transformers folder.

    An output projection that is tied to the embedding is written apart from it: vLLM 0.32 reloads
    a tied one as the embedding only, and would go on with its former projection.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with plain_weights(model) as state, no_bars():
        shown = copy.copy(model.network)
        # where this flag is set, save_pretrained writes the adapters alone
        shown._hf_peft_config_loaded = False
        if model.network.config.tie_word_embeddings:
            shown.config = copy.deepcopy(model.network.config)
            shown.config.tie_word_embeddings = False
            name = _output_name(model)
            state[name] = state[name].clone()
        shown.save_pretrained(folder, state_dict=state, safe_serialization=True)
    model.tokenizer.save_pretrained(folder)


def _output_name(model: CausalLM) -> str:
    """The name of the output projection's weight."""
    project = model.network.get_output_embeddings()
    return next(f"{name}.weight" for name, m in model.network.named_modules() if m is project)
