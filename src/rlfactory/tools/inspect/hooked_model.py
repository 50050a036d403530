"""A language model in TransformerLens: activations of its parts in the residual stream;
and prompts with responses as rows of token ids.

TransformerLens rewires a network in place, so it always gets a copy.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformer_lens.model_bridge import TransformerBridge
from transformers import PreTrainedModel

from rlfactory.model.lora import merge_adapters
from rlfactory.model.pipelines.hub_models import no_bars
from rlfactory.rollout import Tokens
from rlfactory.utils.errors import UserError
from rlfactory.utils.pytree import index_rows, row_chunks

_SPACE, _LAST_DRAWN = "␣", 0x24F  # the figures' font has Latin letters
END = "(end)"
_ESCAPES = {"\n": "\\n", "\t": "\\t", " ": _SPACE}
_BATCH = 16
_START = "blocks.0.hook_resid_pre"
_SCALE, _FINAL = "ln_final.hook_scale", "ln_final.hook_out"
_PARTS = ("attn.hook_z", "hook_mlp_out", "hook_resid_post")


@dataclass(frozen=True)
class Texts:
    """B prompts with their responses, one row each, and masks of their positions.

    Attributes:
        ids: `[B, T]`, padded on the right, where a causal model's other positions don't see it.
        read: `[B, T]`, true on the tokens of a response.
        foretold: `[B, T]`, true on the P positions that predict a response token.
        ends: `[B, T]`, true on the last position of each prompt.
    """

    ids: Tensor
    read: Tensor
    foretold: Tensor
    ends: Tensor

    @property
    def next(self) -> Tensor:
        """The response tokens `[P]`, row by row: those that the foretold positions predict."""
        return self.ids[self.read]


def texts_of(tokens: Tokens) -> Texts:
    """Prompts and responses joined, without the padding between them, on the CPU."""
    parts = zip(tokens.prompt, tokens.prompt_mask, tokens.response, tokens.mask, strict=True)
    rows = [torch.cat([prompt[real], text[kept]]).cpu() for prompt, real, text, kept in parts]
    ids = pad_sequence(rows, batch_first=True)
    at, prompts = torch.arange(ids.shape[1]), tokens.prompt_mask.sum(1).cpu()[:, None]
    lengths = torch.tensor([[len(row)] for row in rows])
    return Texts(
        ids,
        read=(at >= prompts) & (at < lengths),
        foretold=(at >= prompts - 1) & (at < lengths - 1),
        ends=at == prompts - 1,
    )


def token_name(tokenizer: Any, token: int) -> str:
    """A token's text, with visible spaces, and code points for characters without a glyph.

    A token that is a part of a character has no text; its name in the vocabulary is used.
    """
    text: str = tokenizer.decode([token])
    if not text or "\N{REPLACEMENT CHARACTER}" in text:
        text = str(tokenizer.convert_ids_to_tokens(token))
    if token == tokenizer.eos_token_id:
        return END
    return "".join(_drawn(character) for character in text)


def _drawn(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    plain = character.isprintable() and ord(character) <= _LAST_DRAWN
    return character if plain else f"\\u{ord(character):04x}"


class InspectionError(UserError, ValueError):
    """A run that can't be inspected; the message says why."""


@dataclass(frozen=True)
class Stream:
    """Vectors that L layers of H heads write into the residual stream of width d, at P positions.

    Attributes:
        start: `[P, d]`, the embeddings.
        mlp: `[P, L, d]`, outputs of the MLPs.
        heads: `[P, L, H, c]`, outputs of the heads before the output matrix.
        after: `[P, L, d]`, the stream after each layer.
        scale: `[P, 1]`, by which the last layer norm divides.
        final: `[P, d]`, its output.
    """

    start: Tensor
    mlp: Tensor
    heads: Tensor
    after: Tensor
    scale: Tensor
    final: Tensor


def boot(network: PreTrainedModel, tokenizer: Any) -> TransformerBridge:
    """A copy of the network with the weights in use, in TransformerLens; adapters are merged."""
    copied = deepcopy(network)
    merge_adapters(copied)
    name = type(copied).__name__
    copied.config.architectures = [name]
    with TemporaryDirectory() as folder, no_bars():
        # from a folder, as TransformerLens would ask the hub by name
        copied.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        try:
            bridge = TransformerBridge.boot_transformers(
                folder, hf_model=copied, tokenizer=deepcopy(tokenizer), device=str(network.device)
            )
        except (ValueError, NotImplementedError, AttributeError, KeyError) as error:
            raise InspectionError(f"TransformerLens can't boot a {name}: {error}") from error
    bridge.eval()
    return bridge


@torch.no_grad()
def read(bridge: TransformerBridge, ids: Tensor, where: Tensor) -> Stream:
    """Run the network on `ids` `[B, T]`; P are the positions where `where` `[B, T]` is true."""
    names = [f"blocks.{i}.{part}" for i in range(bridge.cfg.n_layers) for part in _PARTS]
    kept = {_START, _SCALE, _FINAL, *names}
    ids, where = ids.to(bridge.cfg.device), where.to(bridge.cfg.device)
    mask = torch.ones_like(ids)
    _, cache = bridge.run_with_cache(ids, attention_mask=mask, names_filter=kept.__contains__)
    if missing := kept - {*cache}:
        raise InspectionError(f"this network has no {min(missing)}, which networks like GPT-2 have")

    def layers(part: str) -> Tensor:
        values = [cache[f"blocks.{i}.{part}"][where] for i in range(bridge.cfg.n_layers)]
        return torch.stack(values, dim=1)

    heads, mlp, after = map(layers, _PARTS)
    start, scale, final = (cache[name][where] for name in (_START, _SCALE, _FINAL))
    return Stream(start, mlp, heads, after, scale, final)


def streams(bridge: TransformerBridge, texts: Texts) -> Iterator[tuple[Texts, Stream]]:
    """Yield texts in batches, each with the stream at its foretold positions."""
    for rows in row_chunks(len(texts.ids), _BATCH):
        part = index_rows(texts, rows)
        yield part, read(bridge, part.ids, part.foretold)
