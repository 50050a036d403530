"""Decoding latents as their pipeline does."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from diffusers import StableDiffusion3Pipeline

from rlfactory.model.pipelines.latents import Scaled, decode_latents
from rlfactory.model.pipelines.pipeline_loading import load_pipeline


def test_decoding_is_what_the_pipeline_itself_shows(sd3_folder: Path) -> None:
    pipe = load_pipeline(StableDiffusion3Pipeline, str(sd3_folder), torch.float32)
    pipe.set_progress_bar_config(disable=True)

    def call(output_type: str) -> StableDiffusion3Pipeline:
        return pipe(
            prompt=["a red circle", "two stars"],
            num_inference_steps=2,
            generator=torch.Generator().manual_seed(0),
            guidance_scale=1.0,
            max_sequence_length=16,
            height=64,
            width=64,
            output_type=output_type,
        ).images

    shown = torch.from_numpy(np.stack([np.asarray(image) for image in call("pil")]))
    found = decode_latents(partial(Scaled().decode, pipe.vae), call("latent"), 8)
    assert found.dtype == torch.uint8
    assert found.shape == (2, 3, 64, 64)
    assert found.float().std() > 1
    assert torch.equal(found.permute(0, 2, 3, 1), shown)
