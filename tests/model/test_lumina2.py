"""Lumina-Image 2.0: its system prompt, its guidance, and how many tokens have positions."""

from pathlib import Path

import pytest
import torch

from rlfactory.model.lumina2 import Lumina2
from rlfactory.model.pipelines.embedding_cache import LENGTHS
from rlfactory.utils.errors import ModelError


def opened(folder: Path, **options: object) -> Lumina2:
    known = {"path": str(folder), "size": 64, "text_tokens": 256}
    return Lumina2(torch.device("cpu"), **(known | options))


def test_the_negative_prompt_follows_no_system_prompt(lumina2_folder: Path) -> None:
    model = opened(lumina2_folder, guidance=2.0, negative_prompt="stars")
    assert model._negative is not None
    assert model._negative[LENGTHS].tolist() == [len("stars")]
    text = model.encode(["stars"]).tensors
    assert text[LENGTHS].device.type == "cpu"
    assert text[LENGTHS].tolist() == [len(model._written("stars"))]
    assert model._written("stars").endswith(" <Prompt Start> stars")


def test_padding_is_not_read(lumina2_folder: Path) -> None:
    model = opened(lumina2_folder)
    text = model.encode(["a star", "a much longer row of blue squares"]).tensors
    padding = torch.arange(256) >= text[LENGTHS][:, None]
    changed = text | {"sequence": text["sequence"].masked_fill(padding[..., None], 7.0)}
    x, t = torch.randn(2, *model.resolution.shape), torch.tensor([0.3, 0.9])
    with torch.no_grad():
        torch.testing.assert_close(model._predict(x, t, changed), model._predict(x, t, text))


def test_guidance_keeps_the_length_of_rows(lumina2_folder: Path) -> None:
    model = opened(lumina2_folder, guidance=3.0)
    negative, positive = torch.randn(2, 2, 16, 4, 6)
    found = model._combine(negative, positive, torch.ones(2))
    torch.testing.assert_close(found.norm(dim=-1), positive.norm(dim=-1))
    cosine = torch.cosine_similarity(found, negative + 3 * (positive - negative), dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


def test_more_tokens_than_positions_are_refused(lumina2_folder: Path) -> None:
    with pytest.raises(ModelError, match="text_tokens=300: .* type model.text_tokens=299"):
        opened(lumina2_folder, text_tokens=300)
    model = opened(lumina2_folder, text_tokens=299)
    x, t = torch.randn(1, *model.resolution.shape), torch.tensor([0.3])
    assert model.predict(x, t, model.encode(["a star " * 99])).isfinite().all()
