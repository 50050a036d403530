"""Qwen-Image: guidance keeps the length of tokens, and prompts are padded with a mask."""

from pathlib import Path

import pytest
import torch

from rlfactory.model.qwen_image import QwenImage


@pytest.fixture(scope="module")
def model(qwen_image_folder: Path) -> QwenImage:
    return QwenImage(
        torch.device("cpu"), path=str(qwen_image_folder), size=64, text_tokens=256, guidance=3.0
    )


def test_guidance_keeps_the_length_of_each_token(model: QwenImage) -> None:
    generator = torch.Generator().manual_seed(0)
    negative, positive = (torch.randn(2, 4, 4, 6, generator=generator) for _ in range(2))
    found = model._combine(negative, positive, torch.ones(len(positive)))
    plain = negative + 3 * (positive - negative)
    for rows in (slice(0, 2), slice(2, 4)):
        for columns in (slice(0, 2), slice(2, 4), slice(4, 6)):
            token, of_plain, wanted = (
                x[:, :, rows, columns].flatten(1) for x in (found, plain, positive)
            )
            torch.testing.assert_close(token.norm(dim=1), wanted.norm(dim=1))
            cosine = torch.cosine_similarity(token, of_plain)
            torch.testing.assert_close(cosine, torch.ones(2))


def test_prompts_are_padded_and_padding_is_not_read(model: QwenImage) -> None:
    text = model.encode(["a star", "a much longer prompt of two blue squares"]).tensors
    assert text["sequence"].shape == (2, 256, 16)
    lengths = text["mask"].sum(1).tolist()
    assert lengths[1] - lengths[0] == len("a much longer prompt of two blue squares") - len(
        "a star"
    )
    changed = {**text, "sequence": text["sequence"].masked_fill(~text["mask"][..., None], 7.0)}
    x, t = torch.randn(2, *model.resolution.shape), torch.tensor([0.3, 0.9])
    with torch.no_grad():
        torch.testing.assert_close(model._predict(x, t, changed), model._predict(x, t, text))


def test_latents_are_stretched_to_the_autoencoders_statistics(model: QwenImage) -> None:
    latents = torch.zeros(1, *model.resolution.shape)
    mean = torch.tensor(model.pipe.vae.config.latents_mean).view(1, -1, 1, 1, 1)
    with torch.no_grad():
        expected = model.pipe.vae.decode(mean.expand(1, -1, 1, *latents.shape[-2:])).sample[:, :, 0]
        torch.testing.assert_close(model._decode(latents), expected)
