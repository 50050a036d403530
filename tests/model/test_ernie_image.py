"""ERNIE-Image: prompts of their own lengths, no rewriting, and the pipeline's epsilon."""

from pathlib import Path

import pytest
import torch

from rlfactory.model.ernie_image import ErnieImage


@pytest.fixture(scope="module")
def model(ernie_image_folder: Path) -> ErnieImage:
    return ErnieImage(torch.device("cpu"), path=str(ernie_image_folder), size=64, text_tokens=16)


def test_prompts_are_cut_and_padded_beside_their_lengths(model: ErnieImage) -> None:
    text = model.encode(["a star", "two much longer rows of blue squares"]).tensors
    assert text["sequence"].shape == (2, 16, 16)
    assert text["count"].tolist() == [6, 16]
    (whole,) = model.pipe.encode_prompt(["two much longer rows of blue squares"], model.device)
    torch.testing.assert_close(text["sequence"][1], whole[:16])
    x, t = torch.randn(2, *model.resolution.shape), torch.tensor([0.3, 0.9])
    changed = text["sequence"].clone()
    changed[0, 6:] = 7.0
    with torch.no_grad():
        found = model._predict(x, t, text | {"sequence": changed})
        torch.testing.assert_close(found, model._predict(x, t, text))


def test_prompts_are_not_rewritten(model: ErnieImage) -> None:
    assert model.pipe.pe is None
    assert model.pipeline_arguments() == {"guidance_scale": 1.0, "use_pe": False}


def test_variances_get_the_pipelines_epsilon(model: ErnieImage) -> None:
    vae, latents = model.pipe.vae, torch.randn(1, *model.resolution.shape)
    assert vae.config.batch_norm_eps != 1e-5
    mean, variance = (x.view(1, -1, 1, 1) for x in (vae.bn.running_mean, vae.bn.running_var))
    patches = latents * (variance + 1e-5).sqrt() + mean
    pixels = vae.decode(model.pipe._unpatchify_latents(patches)).sample
    with torch.no_grad():
        torch.testing.assert_close(model._decode(latents), pixels, rtol=0, atol=1e-6)
