"""How text and time come to a diffusion network: encoded once, guided, exact or truncated."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from rlfactory.rollout import Condition

Text = Mapping[str, Tensor]


@torch.no_grad()
def encode_once(
    prompts: Sequence[str], known: dict[str, Text], encode: Callable[[list[str]], Text]
) -> Condition:
    """One row for each prompt; those that are not yet `known` go through `encode`, together."""
    new = sorted(set(prompts) - known.keys())
    if new:
        encoded = encode(new)
        known |= {p: {name: rows[i] for name, rows in encoded.items()} for i, p in enumerate(new)}
    rows = [known[prompt] for prompt in prompts]
    return Condition({name: torch.stack([row[name] for row in rows]) for name in rows[0]})


def guided(
    network: Callable[[Tensor, Tensor, Text], Tensor],
    x: Tensor,
    t: Tensor,
    positive: Text,
    negative: Text | None,
    guidance: float,
) -> Tensor:
    """Classifier-free guidance, `n + guidance (p - n)`: both in one forward, both with gradient.

    `negative` has one row for all; without it there is no guidance, and half as much to compute.
    """
    if negative is None:
        return network(x, t, positive)
    both = {
        name: torch.cat([negative[name].expand_as(rows), rows]) for name, rows in positive.items()
    }
    n, p = network(torch.cat([x, x]), torch.cat([t, t]), both).chunk(2)
    return n + guidance * (p - n)


def network_times(t: Tensor, kind: Literal["exact", "truncated"]) -> Tensor:
    """`1000 t`, as it is or, as DanceGRPO and MixGRPO have it, without its fraction."""
    times = 1000 * t
    return times if kind == "exact" else times.trunc()
