"""The shipped image models load in plain diffusers, generate scenes and use guidance."""

from functools import partial

import pytest
import torch
from diffusers import FluxPipeline, StableDiffusionPipeline
from torch import Tensor

from rlfactory.config.overrides import plan_from_words
from rlfactory.model.flux import Flux
from rlfactory.model.pipelines.latents import Scaled, decode_latents
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.prompts.shapes import ShapesPrompts
from rlfactory.reward.base import Samples
from rlfactory.reward.shapes import Shapes
from rlfactory.train.build import build

FLOAT = {"default": torch.float32}


def noise(count: int) -> Tensor:
    return torch.randn(count, 16, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tiny_sd", "tiny_flux"])
def test_it_draws_what_it_is_told_more_often_than_not(model: str) -> None:
    config = plan_from_words(f"model={model}", "hardware=cpu").config
    parts = build(config)
    prompts = [p for p in ShapesPrompts().held_out(64) if p.metadata["tag"] == "single_object"]
    prompts = prompts[:8]
    drawn = parts.sampler.draw([p.text for p in prompts], seed=0, stream="evaluation")
    samples = Samples(
        prompts=[p.text for p in prompts],
        metadata=[p.metadata for p in prompts],
        groups=torch.arange(len(prompts)),
        images=drawn.images,
    )
    assert Shapes().score(samples)["shapes"].mean() > 0.4


@torch.no_grad()
def test_plain_diffusers_decodes_tiny_sd_right() -> None:
    pipe = StableDiffusionPipeline.from_pretrained(zoo_path("tiny_sd"), dtype=FLOAT)
    pipe.set_progress_bar_config(disable=True)
    shown, latents = (
        pipe("two stars", num_inference_steps=2, latents=noise(1), output_type=kind).images
        for kind in ("pt", "latent")
    )
    assert shown.shape == (1, 3, 64, 64)
    assert pipe.vae.config.shift_factor is None
    ours = decode_latents(partial(Scaled().decode, pipe.vae), latents, 8)
    assert torch.equal((shown * 255).round().to(torch.uint8), ours)


@torch.no_grad()
def test_plain_diffusers_draws_with_tiny_flux() -> None:
    pipe = FluxPipeline.from_pretrained(zoo_path("tiny_flux"), dtype=FLOAT)
    pipe.set_progress_bar_config(disable=True)
    options = {"height": 64, "width": 64, "num_inference_steps": 2, "output_type": "pt"}
    shown = pipe("two stars", max_sequence_length=16, **options).images
    assert shown.shape == (1, 3, 64, 64)
    assert shown.std() > 0.01


@torch.no_grad()
def test_embedded_guidance_is_what_two_evaluations_make() -> None:
    options = {"path": "zoo:tiny_flux", "finetune": "full", "size": 64, "text_tokens": 16}
    model = Flux(torch.device("cpu"), embedded_guidance=1.0, **options)
    prompts = ["a red circle left of a blue square", "three stars", "a green cross", "a pink star"]
    x, t = noise(4), torch.full((4,), 0.9)
    u = model.predict(x, t, model.encode([""] * 4))
    c = model.predict(x, t, model.encode(prompts))
    model.embedded_guidance = 4.0
    guided = model.predict(x, t, model.encode(prompts))
    off = (guided - (u + 4 * (c - u))).norm() / (3 * (c - u)).norm()
    assert off < 0.5
