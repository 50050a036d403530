"""Finding a diffusers pipeline and decoding its latents: what the image adapters share."""

from pathlib import Path

import torch
from diffusers import AutoencoderKL, DiffusionPipeline
from torch import Tensor

from rlfactory.zoo.models import zoo_path

ZOO_PREFIX = "zoo:"


class ModelError(ValueError):
    """A model that can't be loaded; the message says what to type instead."""


def resolve(path: str) -> str:
    """The folder of a model that ships (`zoo:NAME`), a local folder, or a hub id as it is."""
    if path.startswith(ZOO_PREFIX):
        return str(zoo_path(path.removeprefix(ZOO_PREFIX)))
    return str(Path(path).expanduser()) if path.startswith(("~", ".", "/")) else path


def load_pipeline(
    kind: type[DiffusionPipeline], path: str, dtype: torch.dtype
) -> DiffusionPipeline:
    """Load a pipeline of one class, every part of it in `dtype`."""
    folder = resolve(path)
    if Path(folder).is_dir() and not (Path(folder) / "model_index.json").is_file():
        raise ModelError(f"model.path={path}: {folder} holds no model_index.json, so no pipeline")
    try:
        # transformers' parts take the dtype they were saved in unless each is told
        return kind.from_pretrained(folder, torch_dtype={"default": dtype})
    except (OSError, ValueError) as error:
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
