"""Loading a causal language model and its tokenizer, prepared for sampling and replay."""

import copy
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import (
    AutoConfig,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
)
from transformers.activations import NewGELUActivation
from transformers.utils import GENERATION_CONFIG_NAME

from rlfactory.model.lm.known_passes import require_known_passes
from rlfactory.model.lm.trainable import gguf_of, is_lora
from rlfactory.model.pipelines.hub_models import explained, no_bars
from rlfactory.model.pipelines.local_models import part_variant, resolve
from rlfactory.model.precision import in_dtype, network_device
from rlfactory.utils.errors import ModelError
from rlfactory.utils.live_objects import is_reference
from rlfactory.utils.live_objects import resolve as live

log = logging.getLogger(__name__)

NO_CODE = {"trust_remote_code": False}
"""For transformers' Auto classes, which would else ask at the terminal whether to run code that
lies beside the weights."""


MERGED = (
    "the LoRA adapters of the model that was handed over are merged into its weights, and new ones"
    " are trained on top: exported adapters belong to model.merge_and_unload(), not to its base;"
    " begin_from=FOLDER goes on with the adapters themselves"
)


def load_language_model(
    path: str,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    auto_class: str = "AutoModelForCausalLM",
) -> tuple[PreTrainedModel, Any]:
    """The network without dropout, its weights in `dtype`, and its tokenizer, which pads on the
    left.

    The network is on `device` (None: the CPU), or where `network_on` says; `auto_class` of
    transformers loads it. ModelError where there is no such model, its tokenizer has no end-of-text
    token, or its logits are not computed in a known way, on a cache too.
    """
    target = network_device(device or torch.device("cpu"))
    if is_reference(path):
        # copies: what the caller handed over is not changed, and a resumed run begins from it too
        network, tokenizer = copy.deepcopy(live(path))
        in_dtype(network.to(target), dtype)
        if is_lora(network):
            if any(p.any() for name, p in network.named_parameters() if "lora_B" in name):
                log.warning(MERGED)
            network = network.merge_and_unload()
            network.requires_grad_(True)  # PEFT has frozen it
        tokenizer.padding_side = "left"
    else:
        with explained(path, "a language model") as locate, no_bars():
            location, options = _place(path, locate)
            tokenizer = AutoTokenizer.from_pretrained(location, padding_side="left", **options)
            network = _load_network(location, dtype, target, options, auto_class)
    if network.base_model is network:  # Llama 4's prefix is that of its vision model's
        network.base_model_prefix = "model"
    if tokenizer.eos_token is None:
        raise ModelError(
            f"model.path={path}: its tokenizer has no end of text, so no response could end;"
            " set eos_token in its tokenizer_config.json"
        )
    if tokenizer.eos_token_id >= (rows := network.get_input_embeddings().weight.shape[0]):
        raise ModelError(
            f"model.path={path}: its end of text is {tokenizer.eos_token!r}, token"
            f" {tokenizer.eos_token_id}, and its embedding has {rows} rows, so no response could"
            " end; name another eos_token in its tokenizer_config.json"
        )
    # responses are padded by explicit masks, so the end of text can serve as padding too
    if tokenizer.pad_token is None or tokenizer.pad_token_id >= rows:
        tokenizer.pad_token = tokenizer.eos_token
    _leave_out_end(tokenizer)
    require_finite_weights(network, path)
    _say_unheeded(network, path)
    disable_dropout(network)
    fuse_activations(network)
    skip_padding_check(network)
    network.eval()
    require_known_passes(network, path)
    return network, tokenizer


def _leave_out_end(tokenizer: Any) -> None:
    """Let a tokenizer put no end behind texts, as `add_eos_token` has it: prompts would end."""
    ids = tokenizer("a").input_ids
    if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
        tokenizer.add_bos_token = ids[0] == tokenizer.bos_token_id
        tokenizer.add_eos_token = False


def _say_unheeded(network: PreTrainedModel, path: str) -> None:
    """Say which ends of texts a model's files name and a run does not know."""
    if stop := getattr(network.generation_config, "stop_strings", None):
        remedy = f"type dynamics.stop={json.dumps(stop, ensure_ascii=False)} for that"
        message = "the generation_config.json of %s ends texts at %s, which no run does; %s"
        log.warning(message, path, stop, remedy)


def require_finite_weights(network: nn.Module, path: str, key: str = "model.path") -> None:
    """ModelError, which names a weight, where one is NaN or infinite: a run would not tell."""
    named = {n: p for n, p in network.named_parameters() if p.is_floating_point() and p.numel()}
    ends = {n: torch.stack(torch.aminmax(p.detach())) for n, p in named.items() if not p.is_meta}
    if faulty := [name for name, both in ends.items() if not both.isfinite().all()]:
        others = f" and {len(faulty) - 1} others" if faulty[1:] else ""
        raise ModelError(
            f"{key}={path}: its weights hold NaN or infinity, in {faulty[0]}{others}; its file is"
            " damaged, or was saved after its training had diverged"
        )


def load_tokenizer(path: str, *, key: str) -> Any:
    """The tokenizer of a language model; ModelError, which names `key`, where there is none."""
    with explained(path, "a language model", key=key) as locate:
        location, options = _place(path, locate)
        return AutoTokenizer.from_pretrained(location, **options)


def _place(path: str, locate: Callable[[str], str]) -> tuple[str, dict[str, Any]]:
    """A path for transformers' Auto classes: a folder or hub id, and options."""
    file = gguf_of(Path(path).expanduser())
    if file is not None:
        return str(file.parent), {"gguf_file": file.name, **NO_CODE}
    return locate(resolve(path, "config.json")), NO_CODE


def _load_network(
    location: str,
    dtype: torch.dtype,
    device: torch.device,
    options: Mapping[str, Any],
    auto_class: str,
) -> PreTrainedModel:
    network: PreTrainedModel
    loader = getattr(transformers, auto_class)
    if (Path(location) / GENERATION_CONFIG_NAME).is_file():
        # transformers leaves one out that it can't read, and with it the ends of texts
        GenerationConfig.from_pretrained(location)
    if device.type != "meta":
        network, info = loader.from_pretrained(
            location,
            dtype=dtype,
            variant=part_variant(Path(location)),
            output_loading_info=True,
            **options,
        )
        if missing := sorted(info["missing_keys"]):
            raise ValueError(
                f"its files have no {', '.join(missing[:3])}, which {type(network).__name__} needs"
            )
        return (_dequantised(network) if "gguf_file" in options else network).to(device)
    with device:
        network = loader.from_config(
            AutoConfig.from_pretrained(location, **options), dtype=dtype, **NO_CODE
        )
    # it has a file of its own, which names the tokens that end a text
    with suppress(OSError):
        network.generation_config = GenerationConfig.from_pretrained(location)
    return network


def save_plain(path: str, folder: str) -> None:
    """Save a language model and its tokenizer, in float32; ModelError where `path` is none."""
    network, tokenizer = load_language_model(path)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _dequantised(network: PreTrainedModel) -> PreTrainedModel:
    """A network from a GGUF file, whose weights are plain by now, as one that can be saved."""
    config = copy.deepcopy(network.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = in_dtype(type(network)(config), network.dtype)
    plain.load_state_dict(network.state_dict())
    plain.tie_weights()
    return plain


def end_ids(network: PreTrainedModel, tokenizer: Any) -> list[int]:
    """Ids of the tokens that end a text: the tokenizer's, and those of `generation_config`.

    Chat models name several there, and some end their turns with another than the tokenizer's.
    """
    configured = getattr(network.generation_config, "eos_token_id", None)
    others = configured if isinstance(configured, list | tuple) else [configured]
    others = [token for token in others if token is not None]
    if wrong := [token for token in others if not isinstance(token, int)]:
        raise ModelError(
            f"model.path: eos_token_id in generation_config.json has {wrong[0]!r}; allowed are"
            " whole numbers, the ids of tokens"
        )
    return sorted({tokenizer.eos_token_id, *others})


def context_of(network: PreTrainedModel, tokenizer: Any) -> int:
    """The most tokens of a text: the network's positions or, where it has none, the tokenizer's."""
    positions = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    return int(tokenizer.model_max_length if positions is None else positions)


def begins_with_end(tokenizer: Any) -> bool:
    """Whether texts began with an end of text in pretraining, as GPT-2's documents.

    There the beginning and the end are one token. A chat model's end closes a turn, and must not
    stand before a prompt; and OPT's tokenizer puts it there itself.
    """
    is_one = tokenizer.bos_token == tokenizer.eos_token
    return is_one and tokenizer.chat_template is None and not tokenizer("").input_ids


def disable_dropout(network: nn.Module) -> None:
    """Set every dropout to 0: with it a replayed token would have another random likelihood."""
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in [*vars(module).items()]:
            # the probabilities of functional dropouts
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def fuse_activations(network: nn.Module) -> None:
    """Replace GPT-2's GELU by torch's fused one; transformers makes eight passes over memory."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, NewGELUActivation):
                setattr(module, name, nn.GELU(approximate="tanh"))


def skip_padding_check(network: nn.Module) -> None:
    """Leave out transformers' warning about padding in passes without a mask: it reads token ids
    from the GPU, for which the host would wait in each pass.
    """
    for module in network.modules():
        if isinstance(module, PreTrainedModel):
            module.warn_if_padding_and_no_attention_mask = _no_warning


def _no_warning(*_: object) -> None: ...
