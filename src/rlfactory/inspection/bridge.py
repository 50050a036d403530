"""A language model as TransformerLens sees it, and what its parts write.

Booting rewires a network in place, so what is booted is always a copy.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge
from transformers import PreTrainedModel

from rlfactory.inspection.errors import InspectionError
from rlfactory.inspection.texts import Texts
from rlfactory.model.lora import merge_adapters
from rlfactory.model.pipeline import no_bars
from rlfactory.nest import chunks, take

_BATCH = 16
_START = "blocks.0.hook_resid_pre"
_SCALE, _FINAL = "ln_final.hook_scale", "ln_final.hook_out"
_PARTS = ("attn.hook_z", "hook_attn_out", "hook_mlp_out", "hook_resid_post")


@dataclass(frozen=True)
class Stream:
    """What L layers of H heads wrote into the residual stream of width d, at P positions.

    `start` `[P, d]` comes from the embeddings, `attention` and `mlp` `[P, L, d]` from the layers;
    `after` `[P, L, d]` is the sum so far, `heads` `[P, L, H, c]` what the heads found, before the
    output matrix. The last layer norm divides by `scale` `[P, 1]` and gives `final` `[P, d]`.
    """

    start: Tensor
    attention: Tensor
    mlp: Tensor
    heads: Tensor
    after: Tensor
    scale: Tensor
    final: Tensor


def boot(network: PreTrainedModel, tokenizer: Any) -> TransformerBridge:
    """A copy of the network with the weights in use; adapters become part of its matrices."""
    copied = deepcopy(network)
    merge_adapters(copied)
    name = type(copied).__name__
    copied.config.architectures = [name]
    with TemporaryDirectory() as folder, no_bars():
        # given a folder, TransformerLens asks no hub
        copied.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        try:
            bridge = TransformerBridge.boot_transformers(
                folder,
                hf_model=copied,
                tokenizer=deepcopy(tokenizer),
                device=str(network.device),
            )
        except (ValueError, NotImplementedError, AttributeError, KeyError) as error:
            raise InspectionError(f"TransformerLens can't boot a {name}: {error}") from error
    bridge.eval()
    return bridge


@torch.no_grad()
def read(bridge: TransformerBridge, ids: Tensor, where: Tensor) -> Stream:
    """One pass over `ids` `[B, T]`; P are the positions where `where` `[B, T]` is true."""
    names = [f"blocks.{i}.{part}" for i in range(bridge.cfg.n_layers) for part in _PARTS]
    kept = {_START, _SCALE, _FINAL, *names}
    device = bridge.cfg.device
    mask = torch.ones_like(ids).to(device)
    _, cache = bridge.run_with_cache(
        ids.to(device), attention_mask=mask, names_filter=lambda name: name in kept
    )
    if missing := kept - {*cache}:
        raise InspectionError(f"this network has no {min(missing)}, as one of GPT-2's kind has")
    where = where.to(device)

    def layers(part: str) -> Tensor:
        found = [cache[f"blocks.{i}.{part}"][where] for i in range(bridge.cfg.n_layers)]
        return torch.stack(found, dim=1)

    z, attention, mlp, after = map(layers, _PARTS)
    start, scale, final = (cache[name][where] for name in (_START, _SCALE, _FINAL))
    return Stream(start, attention, mlp, z, after, scale, final)


def streams(bridge: TransformerBridge, texts: Texts) -> Iterator[tuple[Texts, Stream]]:
    """Some texts at a time, and the stream at their foretold positions."""
    for rows in chunks(len(texts.ids), _BATCH):
        part = take(texts, rows)
        yield part, read(bridge, part.ids, part.foretold)
