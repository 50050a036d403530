"""Components that `tiny_sd` and `tiny_flux` take from the shipped `tiny_sd3`."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKL, StableDiffusion3Pipeline
from safetensors.torch import load_file, save_file
from transformers import (
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5EncoderModel,
    T5TokenizerFast,
)

from rlfactory.model.pipelines.hub_models import no_bars
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.model.pipelines.shipped import SHARED

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
    """The components of `zoo:tiny_sd3`."""
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
    """The same CLIP text encoder without its projection, as in Stable Diffusion 1 and FLUX."""
    plain = CLIPTextModel(encoder.config)
    state = {k.removeprefix("text_model."): v for k, v in encoder.text_model.state_dict().items()}
    plain.load_state_dict(state)
    return plain


def share_autoencoder(out: Path) -> None:
    """Leave `tiny_sd3`'s weights out of the autoencoder of a pipeline saved beside it.

    What the autoencoder has beyond them stays, as the second shard of its checkpoint. A pipeline
    saved elsewhere stays complete.
    """
    source = zoo_folder("tiny_sd3")
    if out.resolve().parent != source.parent:
        return
    file = "vae/diffusion_pytorch_model.safetensors"
    state, shared = load_file(out / file), load_file(source / file)
    assert all(torch.equal(state[name], values) for name, values in shared.items())
    own = {name: values for name, values in state.items() if name not in shared}
    (out / file).unlink()
    first = file
    if own:
        first, second = (file.replace(".", f"-0000{i}-of-00002.", 1) for i in (1, 2))
        save_file(own, out / second, {"format": "pt"})
        shard = {name: Path(second if name in own else first).name for name in sorted(state)}
        size = sum(values.numel() * values.element_size() for values in state.values())
        write_json(
            out / f"{file}.index.json", {"metadata": {"total_size": size}, "weight_map": shard}
        )
    write_json(out / SHARED, {first: f"{source.name}/{file}"})


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def zoo_folder(name: str) -> Path:
    """The folder of a model's weights."""
    return ROOT / "src" / "rlfactory" / "model" / "zoo" / "weights" / name


def grid_path(name: str) -> Path:
    """The path of a model's image grid."""
    return ROOT / "docs" / "images" / f"{name}.png"
