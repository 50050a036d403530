"""A pipeline as an adapter begins with it: each part in its precision and in its place, frozen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import nn

from rlfactory.model.memory import Memory
from rlfactory.model.pipeline import load_pipeline
from rlfactory.model.precision import Precision
from rlfactory.model.prompt_cache import PromptCache, Text
from rlfactory.model.text_encoders import TextEncoders


def open_pipeline(
    kind: type[DiffusionPipeline],
    path: str,
    device: torch.device,
    precision: Precision,
    memory: Memory,
    cache: PromptCache,
    encode: Callable[[list[str]], Text],
    *,
    whole: str | None,
    always: Sequence[str] = (),
    reads: Mapping[str, object] | None = None,
    **parts: object,
) -> tuple[Any, TextEncoders]:
    """`load_frozen`, and its text encoders, which are not loaded where the cache has all prompts.

    `encode` gives rows for prompts by them; `always` are prompts that every run asks for, `reads`
    is what else an embedding depends on.
    """
    options = dict(reads or {})
    texts = TextEncoders(kind, path, cache, device, precision.weights, always=always, **options)
    left_out = {**texts.left_out, **parts}
    pipe = load_frozen(kind, path, device, precision, memory, whole=whole, **left_out)
    texts.serve(pipe, encode)
    return pipe, texts


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
