"""How text and time come to a diffusion network: encoded once, guided, exact or truncated."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from rlfactory.model.prompt_cache import Embeddings, Text
from rlfactory.rollout import Condition


@torch.no_grad()
def encode_once(
    prompts: Sequence[str],
    known: Embeddings,
    encode: Callable[[list[str]], Text],
    device: torch.device,
) -> Condition:
    """One row for each prompt; those that are not yet `known` go through `encode`.

    Each goes alone: together they are faster, but a row's last bits then tell which others it was
    with, and a run that goes on has other new prompts than one that never stopped. A prompt is
    known by all of its text, even where encoders read a part of it alone.
    """
    kept = {prompt: known.get(prompt) for prompt in dict.fromkeys(prompts)}
    rows = {prompt: row for prompt, row in kept.items() if row is not None}
    for prompt in [prompt for prompt in kept if prompt not in rows]:
        rows[prompt] = {name: tensor[0].cpu() for name, tensor in encode([prompt]).items()}
        known.put(prompt, rows[prompt])
    texts = [rows[prompt] for prompt in prompts]
    stacked = {name: torch.stack([row[name] for row in texts]) for name in texts[0]}
    return Condition({name: tensor.to(device) for name, tensor in stacked.items()})


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
