"""Direct logit attribution (Elhage et al. 2021): a logit as a sum over the parts of the network.

With its scale held fixed, the last layer norm is linear, so the projection of the final state on a
direction is the sum of the projections of what each part wrote into the residual stream.
`lens` is the logit lens (nostalgebraist 2020).
"""

import math

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.tools.inspect.hooked_model import InspectionError, Stream, Texts, streams

_TOLERANCE = 1e-3


def part_names(layers: int, heads: int) -> list[str]:
    """The names of the N parts that contributions are given for, in the order of writing."""
    inner = list[str]()
    for layer in range(1, layers + 1):
        inner += [f"head {layer}.{head}" for head in range(1, heads + 1)]
        inner += [f"attention bias {layer}", f"MLP {layer}"]
    return ["embeddings", *inner, "constant"]


def block_names(layers: int) -> list[str]:
    """The names of the parts of `by_block`."""
    pairs = [name for i in range(1, layers + 1) for name in (f"attention {i}", f"MLP {i}")]
    return ["embeddings", *pairs, "constant"]


def by_layer(parts: Tensor, layers: int) -> Tensor:
    """Contributions `[N, ...]` by layer, `[L, H + 2, ...]`: heads, bias, MLP."""
    return parts[1:-1].reshape(layers, -1, *parts.shape[1:])


def by_block(parts: Tensor, layers: int) -> Tensor:
    """Contributions `[N, ...]` as `[2 L + 2, ...]`: heads and bias of a layer are one part."""
    inner = by_layer(parts, layers)
    blocks = torch.stack([inner[:, :-1].sum(1), inner[:, -1]], 1).flatten(0, 1)
    return torch.cat([parts[:1], blocks, parts[-1:]])


def attribute(
    bridge: TransformerBridge, stream: Stream, directions: Tensor, offset: Tensor
) -> Tensor:
    """Contributions `[P, N, K]` to `final @ directions.T + offset`, for directions `[K, d]` and
    offsets `[K]`; the constant is of the last norm's bias and the offset.

    Raises:
        InspectionError: they don't sum to that, since the network has more parts than GPT-2's.
    """
    norm = bridge.ln_final.original_component
    weighted = directions * norm.weight.detach()
    if not bridge.cfg.uses_rms_norm:
        # subtracting the mean from every part equals subtracting it from the directions
        weighted = weighted - weighted.mean(-1, keepdim=True)
    biases = torch.stack([_bias(block.attn.b_O, weighted[0]) for block in bridge.blocks])
    through = bridge.W_O.detach() @ weighted.T  # [L, H, c, K]
    heads = torch.einsum("plhc,lhck->plhk", stream.heads, through)
    bias = (biases @ weighted.T)[None, :, None].expand(len(heads), -1, -1, -1)
    layers = torch.cat([heads, bias, (stream.mlp @ weighted.T)[:, :, None]], 2).flatten(1, 2)
    written = torch.cat([(stream.start @ weighted.T)[:, None], layers], 1) / stream.scale[..., None]
    constant = directions @ _bias(getattr(norm, "bias", None), weighted[0]) + offset
    found = torch.cat([written, constant.expand(len(written), 1, -1)], 1)
    expected = stream.final @ directions.T + offset
    error = (found.sum(1) - expected).abs().max() / expected.abs().max().clamp(min=1)
    if error > _TOLERANCE:
        raise InspectionError(
            f"the parts of this network do not sum to its logits (relative error {error:.1g}), so"
            " they can't be attributed; those of GPT-2, Llama and Qwen can"
        )
    return found


def _bias(bias: Tensor | None, like: Tensor) -> Tensor:
    """The bias, or zeros: networks like Llama have none."""
    return torch.zeros_like(like) if bias is None else bias.detach()


def token_directions(bridge: TransformerBridge, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Directions `[K, d]` and offsets `[K]` that give the logits of the tokens `ids` `[K]`, less
    the vocabulary's mean logit: no probability depends on that.
    """
    unembed, bias = bridge.W_U.detach(), bridge.b_U.detach()
    ids = ids.to(unembed.device)
    return unembed[:, ids].T - unembed.mean(1), bias[ids] - bias.mean()


@torch.no_grad()
def lens(bridge: TransformerBridge, stream: Stream, ids: Tensor) -> Tensor:
    """Log-probabilities `[P, L + 1, K]` of the tokens `ids` `[P, K]`, from the embeddings first."""
    residuals = [stream.start, *stream.after.unbind(1)]
    ids = ids.to(stream.start.device)
    return torch.stack([log_probs(bridge, r).gather(1, ids) for r in residuals], dim=1)


def log_probs(bridge: TransformerBridge, residual: Tensor) -> Tensor:
    """Log-probabilities `[P, V]` of a residual stream `[P, d]`, by last norm and unembedding."""
    logits: Tensor = bridge.unembed(bridge.ln_final(residual[None]))[0]
    return logits.float().log_softmax(-1)


@torch.no_grad()
def mean_probabilities(bridge: TransformerBridge, texts: Texts) -> Tensor:
    """The mean probability `[V]` of each token over the positions that predict a response token."""
    total, count = torch.zeros(bridge.cfg.d_vocab, dtype=torch.float64), 0
    for _, stream in streams(bridge, texts):
        total += log_probs(bridge, stream.after[:, -1]).exp().double().sum(0).cpu()
        count += len(stream.start)
    return total / count


def most_changed(before: Tensor, after: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Tokens whose probability `[V]` rose the most and fell the most, the largest change first.

    Not by ratio, which would list tokens that neither network ever writes.
    """
    order = (after - before).argsort(descending=True)
    return order[:count], order.flip(0)[:count]


def likelier(base: Tensor, tuned: Tensor) -> Tensor:
    """log2 of the factor `[...]` by which mean probabilities rose, from log-probs `[P, ...]`.

    Probabilities are averaged, not log-probabilities: those are dominated by positions where a
    token is very unlikely, and their mean can fall for a token that is written more often.
    """
    before, after = (x.double().logsumexp(0) for x in (base, tuned))
    return ((after - before) / math.log(2)).float()
