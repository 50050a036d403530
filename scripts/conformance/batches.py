"""Random batches of token policies, and the file of what TRL makes of them.

A case is a name, options of TRL and the number of its batches. The file holds the tensors of all
batches, `CASE/NUMBER/NAME`; its metadata hold TRL's version and the options.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

ROWS, WIDTH, VOCABULARY = 4, 6, 5
LONGEST = 8
"""Tokens that a response could have; WIDTH is the longest that any has."""
PAD, END = 0, 1


def response_batch(generator: torch.Generator) -> dict[str, Tensor]:
    """Responses of 1 to WIDTH tokens with logits now, at sampling and of the reference.

    A response of WIDTH tokens may lack its end; no other token is END.
    """
    shape = (ROWS, WIDTH, VOCABULARY)
    logits = 1.5 * torch.randn(shape, generator=generator)
    noise = torch.randn(2, *shape, generator=generator)
    ids = torch.randint(2, VOCABULARY, (ROWS, WIDTH), generator=generator)
    lengths = torch.randint(1, WIDTH + 1, (ROWS,), generator=generator)
    lengths[0] = WIDTH  # some response has full length, and no end
    ended = torch.rand(ROWS, generator=generator) < 0.5
    ended = (lengths < WIDTH) | ended & (torch.arange(ROWS) > 0)
    last = (lengths - 1)[:, None]
    is_end = (torch.arange(WIDTH) == last) & ended[:, None]
    return {
        "logits": logits,
        "old_logits": logits + 0.4 * noise[0],
        "reference_logits": logits + 0.6 * noise[1],
        "response": torch.where(is_end, END, ids),
        "mask": torch.arange(WIDTH) <= last,
        "ended": ended,
        "advantage": torch.randn(ROWS, generator=generator),
    }


def log_prob_of(logits: Tensor, response: Tensor) -> Tensor:
    """Log-probabilities `[B, G]` of the tokens of responses."""
    return logits.log_softmax(-1).gather(-1, response[..., None])[..., 0]


def write(
    path: Path,
    version: str,
    cases: Mapping[str, Mapping[str, Any]],
    recorded: Mapping[str, Tensor],
) -> None:
    """Write what was recorded, as small as it is."""
    narrow = {torch.int64: torch.uint8}
    tensors = {
        name: x.detach().to(narrow.get(x.dtype, x.dtype)).contiguous()
        for name, x in recorded.items()
    }
    metadata = {"version": version, "cases": json.dumps(cases), "longest": str(LONGEST)}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata)
    print(f"{path}: {len(tensors)} tensors, {path.stat().st_size / 2**20:.2f} MiB, {version}")
