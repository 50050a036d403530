"""Direct logit attribution (Elhage et al. 2021): a logit as a sum over the parts of the network.

With its scale held fixed, the last layer norm is linear, so the projection of the final state on a
direction is the sum of the projections of what each part wrote into the residual stream.
`lens` is the logit lens (nostalgebraist 2020).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.tools.inspect.hooked_model import InspectionError, Stream, Texts, streams

_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Readout:
    """The weights between the residual stream and the logits.

    Attributes:
        gain: `[d]`, of the last norm.
        bias: `[d]`, of the last norm.
        unembed: `[d, V]`.
        unembed_bias: `[V]`.
        output: `[L, H, c, d]`, the heads' output matrices.
        output_bias: `[L, d]`, of the attention outputs.
        centred: whether the norm subtracts the mean, as a layer norm does and an RMS norm does not.
    """

    gain: Tensor
    bias: Tensor
    unembed: Tensor
    unembed_bias: Tensor
    output: Tensor
    output_bias: Tensor
    centred: bool


@dataclass(frozen=True)
class Attribution:
    """Contributions to K directions at P positions, in a network of L layers of H heads.

    Attributes:
        start: `[P, K]`, of the embeddings.
        attention: `[P, L, K]`; the sum of `heads` and `head_bias`.
        mlp: `[P, L, K]`.
        heads: `[P, L, H, K]`.
        head_bias: `[P, L, K]`, of the attention output bias.
        constant: `[P, K]`, of the last norm's bias and the unembedding bias.
    """

    start: Tensor
    attention: Tensor
    mlp: Tensor
    heads: Tensor
    head_bias: Tensor
    constant: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "Attribution":
        """Apply a function to every field."""
        return Attribution(**{f.name: change(getattr(self, f.name)) for f in fields(self)})

    def total(self) -> Tensor:
        """The sum of all contributions, `[P, K]`."""
        return self.start + self.attention.sum(1) + self.mlp.sum(1) + self.constant

    def parts(self) -> Tensor:
        """All contributions, `[P, 2 L + 2, K]`, in the order of `part_names`."""
        layers = torch.stack([self.attention, self.mlp], dim=2).flatten(1, 2)
        return torch.cat([self.start[:, None], layers, self.constant[:, None]], dim=1)

    def weighted(self, weights: Tensor) -> "Attribution":
        """One row: the mean over positions with `weights` `[P, K]`."""
        weights = weights / weights.sum(0).clamp(min=1e-12)

        def mean(parts: Tensor) -> Tensor:
            middle = [1] * (parts.ndim - 2)
            return (parts * weights.view(len(weights), *middle, -1)).sum(0, keepdim=True)

        return self.map(mean)


def part_names(layers: int) -> list[str]:
    """The names of the parts, in the order in which they write."""
    pairs = [name for i in range(1, layers + 1) for name in (f"attention {i}", f"MLP {i}")]
    return ["embeddings", *pairs, "constant"]


def readout(bridge: TransformerBridge) -> Readout:
    """The readout weights of a network."""
    norm = bridge.ln_final.original_component
    gain = norm.weight.detach()
    return Readout(
        gain=gain,
        bias=_bias(getattr(norm, "bias", None), gain),
        unembed=bridge.W_U.detach(),
        unembed_bias=bridge.b_U.detach(),
        output=bridge.W_O.detach(),
        output_bias=torch.stack([_bias(block.attn.b_O, gain) for block in bridge.blocks]),
        centred=not bridge.cfg.uses_rms_norm,
    )


def _bias(bias: Tensor | None, like: Tensor) -> Tensor:
    """The bias, or zeros: networks like Llama have none."""
    return torch.zeros_like(like) if bias is None else bias.detach()


def attribute(stream: Stream, readout: Readout, directions: Tensor, offset: Tensor) -> Attribution:
    """Contributions to `final @ directions.T + offset`, for directions `[K, d]`, offsets `[K]`."""
    weighted = directions * readout.gain
    if readout.centred:
        # subtracting the mean from every part equals subtracting it from the directions
        weighted = weighted - weighted.mean(-1, keepdim=True)
    layered = stream.scale[:, None]  # [P, 1, 1]
    through = readout.output @ weighted.T  # [L, H, c, K]
    return Attribution(
        start=stream.start @ weighted.T / stream.scale,
        attention=stream.attention @ weighted.T / layered,
        mlp=stream.mlp @ weighted.T / layered,
        heads=torch.einsum("plhc,lhck->plhk", stream.heads, through) / layered[..., None],
        head_bias=readout.output_bias @ weighted.T / layered,
        constant=(directions @ readout.bias + offset).expand(len(stream.scale), -1),
    )


def token_directions(readout: Readout, ids: Tensor, *, centred: bool) -> tuple[Tensor, Tensor]:
    """Directions `[K, d]` and offsets `[K]` that give the logits of the tokens `ids` `[K]`.

    With `centred`, the vocabulary's mean logit is subtracted: no probability depends on it.
    """
    ids = ids.to(readout.unembed.device)
    directions, offset = readout.unembed[:, ids].T, readout.unembed_bias[ids]
    if centred:
        directions = directions - readout.unembed.mean(1)
        offset = offset - readout.unembed_bias.mean()
    return directions, offset


def require_complete(
    attribution: Attribution, stream: Stream, directions: Tensor, offset: Tensor
) -> None:
    """InspectionError if the parts don't sum to the result: the network has more than GPT-2's."""
    expected = stream.final @ directions.T + offset
    error = (attribution.total() - expected).abs().max() / expected.abs().max().clamp(min=1)
    heads_error = (
        (attribution.heads.sum(2) + attribution.head_bias - attribution.attention).abs().max()
    )
    if max(error, heads_error / expected.abs().max().clamp(min=1)) > _TOLERANCE:
        raise InspectionError(
            f"the parts of this network do not sum to its logits (relative error {error:.1g}, heads"
            f" {heads_error:.1g}), so they can't be attributed; those of GPT-2, Llama and Qwen can"
        )


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
