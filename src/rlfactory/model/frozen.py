"""A pipeline as an adapter begins with it: each part in its precision and in its place, frozen."""

from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import nn

from rlfactory.model.memory import Memory
from rlfactory.model.pipeline import load_pipeline
from rlfactory.model.precision import Precision


def load_frozen(
    kind: type[DiffusionPipeline],
    path: str,
    device: torch.device,
    precision: Precision,
    memory: Memory,
    *,
    whole: str | None = None,
    **parts: object,
) -> Any:
    """A silent pipeline, on `device` but for what `memory` keeps elsewhere; nothing is trained yet.

    Weights are read in `precision.weights` at once, so there is never a larger copy; the
    autoencoder's and those of the part named `whole`, all of which will be trained, in float32.
    """
    in_full = {name: torch.float32 for name in ("vae", whole) if name is not None}
    pipe = load_pipeline(kind, path, {"default": precision.weights, **in_full}, **parts)
    pipe.set_progress_bar_config(disable=True)
    for name, part in pipe.components.items():
        if isinstance(part, nn.Module):
            part.requires_grad_(False).eval().to(memory.home(name, device))
    memory.prepare_vae(pipe.vae)
    return pipe
