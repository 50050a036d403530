"""Direct attribution (Elhage et al. 2021): a logit as a sum over the parts that wrote it.

The last layer norm is linear once its scale is taken as given, so what it passes on to a direction
is the sum of what each part wrote into the residual stream.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.inspection.bridge import Stream
from rlfactory.inspection.errors import InspectionError

_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Readout:
    """How a residual stream is read: the last norm's `gain` and `bias` `[d]`, `unembed` `[d, V]`.

    `unembed_bias` is `[V]`; heads write through `output` `[L, H, c, d]` and `output_bias` `[L, d]`.
    A norm that is `centred` takes the mean away, which RMS norms do not.
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
    """Contributions to K directions at P positions.

    `start` and `constant` are `[P, K]`, `attention`, `mlp` and `head_bias` `[P, L, K]`, and `heads`
    `[P, L, H, K]`; heads and their bias make up the attention.
    """

    start: Tensor
    attention: Tensor
    mlp: Tensor
    heads: Tensor
    head_bias: Tensor
    constant: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "Attribution":
        """The same change to every field."""
        return Attribution(**{f.name: change(getattr(self, f.name)) for f in fields(self)})

    def total(self) -> Tensor:
        """What all parts give together, `[P, K]`."""
        return self.start + self.attention.sum(1) + self.mlp.sum(1) + self.constant

    def parts(self) -> Tensor:
        """`[P, 2 L + 2, K]` in the order of `part_names`."""
        layers = torch.stack([self.attention, self.mlp], dim=2).flatten(1, 2)
        return torch.cat([self.start[:, None], layers, self.constant[:, None]], dim=1)

    def weighted(self, weights: Tensor) -> "Attribution":
        """One row: the mean over positions with `weights` `[P, K]`."""
        shares = weights / weights.sum(0).clamp(min=1e-12)

        def mean(parts: Tensor) -> Tensor:
            middle = [1] * (parts.ndim - 2)
            return (parts * shares.view(len(shares), *middle, -1)).sum(0, keepdim=True)

        return self.map(mean)


def part_names(layers: int) -> list[str]:
    """The parts in the order in which they write."""
    pairs = [name for i in range(1, layers + 1) for name in (f"attention {i}", f"MLP {i}")]
    return ["embeddings", *pairs, "constant"]


def readout(bridge: TransformerBridge) -> Readout:
    """What is fixed in a network, whatever it reads."""
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


def _bias(found: Tensor | None, like: Tensor) -> Tensor:
    """Llama's kind has none, on norms and matrices."""
    return torch.zeros_like(like) if found is None else found.detach()


def attribute(stream: Stream, readout: Readout, directions: Tensor, offset: Tensor) -> Attribution:
    """Contributions to `final @ directions.T + offset`, for directions `[K, d]`, offsets `[K]`."""
    sight = directions * readout.gain
    if readout.centred:
        # taking the mean from every part is taking it from what reads them
        sight = sight - sight.mean(-1, keepdim=True)
    layered = stream.scale[:, None]  # [P, 1, 1]
    through = readout.output @ sight.T  # [L, H, c, K]
    return Attribution(
        start=stream.start @ sight.T / stream.scale,
        attention=stream.attention @ sight.T / layered,
        mlp=stream.mlp @ sight.T / layered,
        heads=torch.einsum("plhc,lhck->plhk", stream.heads, through) / layered[..., None],
        head_bias=readout.output_bias @ sight.T / layered,
        constant=(directions @ readout.bias + offset).expand(len(stream.scale), -1),
    )


def token_directions(readout: Readout, ids: Tensor, *, centred: bool) -> tuple[Tensor, Tensor]:
    """Directions `[K, d]` and offsets `[K]` whose sums are the logits of the tokens `ids` `[K]`.

    With `centred`, less the mean logit of the vocabulary, which no probability depends on.
    """
    ids = ids.to(readout.unembed.device)
    directions, offset = readout.unembed[:, ids].T, readout.unembed_bias[ids]
    if centred:
        directions = directions - readout.unembed.mean(1)
        offset = offset - readout.unembed_bias.mean()
    return directions, offset


def require_complete(
    found: Attribution, stream: Stream, directions: Tensor, offset: Tensor
) -> None:
    """InspectionError where the parts do not add up: the network has others than GPT-2's kind."""
    expected = stream.final @ directions.T + offset
    error = (found.total() - expected).abs().max() / expected.abs().max().clamp(min=1)
    inside = (found.heads.sum(2) + found.head_bias - found.attention).abs().max()
    if max(error, inside / expected.abs().max().clamp(min=1)) > _TOLERANCE:
        raise InspectionError(
            f"the parts of this network do not add up to what it says (they are {error:.1g} off,"
            f" heads {inside:.1g}), so nothing can be put down to them; GPT-2's kind does"
        )
