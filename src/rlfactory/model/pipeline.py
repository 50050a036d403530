"""Finding a diffusers pipeline and decoding its latents: what the image adapters share."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import diffusers
import torch
from diffusers import AutoencoderKL, DiffusionPipeline
from diffusers.utils import logging as diffusers_log
from torch import Tensor
from transformers.utils import logging as transformers_log

from rlfactory.model.families import OPTIONS, PIPELINE_INDEX, pipeline_of
from rlfactory.model.hub import ModelError, explained
from rlfactory.zoo.models import resolve

__all__ = [
    "ModelError",
    "decode_latents",
    "load_pipeline",
    "no_bars",
    "pipeline_folder",
]


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


@cache
def _fetched(kind: str, repo: str) -> str:
    """The folder of a hub id's files, the safety checker's not among them."""
    return str(getattr(diffusers, kind).download(repo, safety_checker=None))


def pipeline_folder(kind: type[DiffusionPipeline], path: str) -> Path:
    """Where a pipeline's files are on this machine, fetched where they must be.

    ModelError where there are none, or those of another family.
    """
    with explained(path, kind.__name__) as locate, no_bars():
        place = locate(resolve(path, PIPELINE_INDEX))
        if not Path(place).is_dir():
            place = _fetched(kind.__name__, place)
    found = pipeline_of(Path(place))
    if found not in (kind.__name__, None):
        option = OPTIONS.get(str(found))
        remedy = f"; type model={option} model.path={path}" if option else ""
        raise ModelError(f"model.path={path} is a {found}, not a {kind.__name__}{remedy}")
    return Path(place)


def load_pipeline(
    kind: type[DiffusionPipeline],
    path: str,
    dtype: torch.dtype | Mapping[str, torch.dtype],
    **parts: object,
) -> DiffusionPipeline:
    """Load a pipeline of one class; `parts` are taken as given.

    `dtype` is that of all parts, or of each by name, of those without one under `default`.
    """
    # transformers' parts take the dtype they were saved in unless each is told
    dtypes = {"default": dtype} if isinstance(dtype, torch.dtype) else dict(dtype)
    folder = pipeline_folder(kind, path)
    with explained(path, kind.__name__), no_bars():
        return kind.from_pretrained(folder, dtype=dtypes, **parts)


@torch.no_grad()
def decode_latents(vae: AutoencoderKL, latents: Tensor) -> Tensor:
    """Latents as a diffusion network sees them to pictures `[B, 3, H, W]`, uint8, on the CPU."""
    unscaled = latents / vae.config.scaling_factor + (vae.config.shift_factor or 0.0)
    pixels = vae.decode(unscaled.to(vae.dtype), return_dict=False)[0].float()
    images: Tensor = ((pixels / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    return images
