"""What the later recipes of images take over from `tiny_sd3`, the one that ships."""

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKL, StableDiffusion3Pipeline
from transformers import (
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5EncoderModel,
    T5TokenizerFast,
)

from rlfactory.model.pipeline import no_bars
from rlfactory.zoo.models import zoo_path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Parts:
    """A trained pipeline in float32, and copies of its autoencoder, text encoders and
    tokenizers.
    """

    teacher: StableDiffusion3Pipeline
    vae: AutoencoderKL
    clip: CLIPTextModel
    clip_tokenizer: CLIPTokenizer
    t5: T5EncoderModel
    t5_tokenizer: T5TokenizerFast


def trained_parts() -> Parts:
    """Those of `zoo:tiny_sd3`."""
    with no_bars():
        pipe = StableDiffusion3Pipeline.from_pretrained(
            zoo_path("tiny_sd3"), dtype={"default": torch.float32}
        )
    for part in (pipe.transformer, pipe.text_encoder, pipe.text_encoder_2, pipe.text_encoder_3):
        part.requires_grad_(False)
    return Parts(
        teacher=pipe,
        vae=pipe.vae,
        clip=without_projection(pipe.text_encoder),
        clip_tokenizer=pipe.tokenizer,
        t5=copy.deepcopy(pipe.text_encoder_3).requires_grad_(True),
        t5_tokenizer=pipe.tokenizer_3,
    )


def without_projection(encoder: CLIPTextModelWithProjection) -> CLIPTextModel:
    """The same text encoder, as Stable Diffusion 1 and FLUX read it."""
    plain = CLIPTextModel(encoder.config)
    state = {k.removeprefix("text_model."): v for k, v in encoder.text_model.state_dict().items()}
    plain.load_state_dict(state)
    return plain


def zoo_folder(name: str) -> Path:
    """Where a recipe's weights go."""
    return ROOT / "src" / "rlfactory" / "zoo" / "weights" / name


def grid_path(name: str) -> Path:
    """Where a recipe's pictures go."""
    return ROOT / "docs" / "images" / f"{name}.png"
