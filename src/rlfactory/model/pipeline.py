"""Finding a diffusers pipeline and decoding its latents: what the image adapters share."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from diffusers import AutoencoderKL, DiffusionPipeline
from diffusers.utils import logging as diffusers_log
from safetensors import SafetensorError
from torch import Tensor
from transformers.utils import logging as transformers_log

from rlfactory.zoo.models import resolve


class ModelError(ValueError):
    """A model that can't be loaded; the message says what to type instead."""


@contextmanager
def no_bars() -> Iterator[None]:
    """Hide the bars that diffusers and transformers draw, one for each part of a pipeline."""
    shown = [lib for lib in (diffusers_log, transformers_log) if lib.is_progress_bar_enabled()]
    for library in shown:
        library.disable_progress_bar()
    try:
        yield
    finally:
        for library in shown:
            library.enable_progress_bar()


def load_pipeline(
    kind: type[DiffusionPipeline],
    path: str,
    dtype: torch.dtype | Mapping[str, torch.dtype],
    **parts: object,
) -> DiffusionPipeline:
    """Load a pipeline of one class; `parts` are taken as given.

    `dtype` is that of all parts, or of each by name, of those without one under `default`.
    """
    try:
        with no_bars():
            # transformers' parts take the dtype they were saved in unless each is told
            dtypes = {"default": dtype} if isinstance(dtype, torch.dtype) else dict(dtype)
            found = resolve(path, "model_index.json")
            return kind.from_pretrained(found, dtype=dtypes, **parts)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(
            f"model.path={path} could not be loaded as {kind.__name__}: {error}"
        ) from error


@torch.no_grad()
def decode_latents(vae: AutoencoderKL, latents: Tensor) -> Tensor:
    """Latents as a diffusion network sees them to pictures `[B, 3, H, W]`, uint8, on the CPU."""
    unscaled = latents / vae.config.scaling_factor + (vae.config.shift_factor or 0.0)
    pixels = vae.decode(unscaled.to(vae.dtype), return_dict=False)[0].float()
    images: Tensor = ((pixels / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    return images
