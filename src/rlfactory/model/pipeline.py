"""Finding a diffusers pipeline and decoding its latents: what the image adapters share."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from diffusers import AutoencoderKL, DiffusionPipeline
from diffusers.utils import logging as diffusers_log
from safetensors import SafetensorError
from torch import Tensor, nn
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
    kind: type[DiffusionPipeline], path: str, dtype: torch.dtype, **parts: object
) -> DiffusionPipeline:
    """Load a pipeline of one class, every part of it in `dtype`; `parts` are taken as given."""
    try:
        with no_bars():
            # transformers' parts take the dtype they were saved in unless each is told
            found = resolve(path, "model_index.json")
            return kind.from_pretrained(found, dtype={"default": dtype}, **parts)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(
            f"model.path={path} could not be loaded as {kind.__name__}: {error}"
        ) from error


def load_frozen(
    kind: type[DiffusionPipeline], path: str, device: torch.device, **parts: object
) -> DiffusionPipeline:
    """A pipeline in float32 on `device`, silent, of which nothing is trained."""
    pipe = load_pipeline(kind, path, torch.float32, **parts).to(device)
    pipe.set_progress_bar_config(disable=True)
    for part in pipe.components.values():
        if isinstance(part, nn.Module):
            part.requires_grad_(False).eval()
    return pipe


@torch.no_grad()
def decode_latents(vae: AutoencoderKL, latents: Tensor) -> Tensor:
    """Latents as a diffusion network sees them to pictures `[B, 3, H, W]`, uint8, on the CPU."""
    unscaled = latents / vae.config.scaling_factor + (vae.config.shift_factor or 0.0)
    pixels = vae.decode(unscaled.to(vae.dtype), return_dict=False)[0].float()
    images: Tensor = ((pixels / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    return images
