"""Edited pictures beside those that they were made from."""

import torch
from PIL import Image

from rlfactory.prompts.ops.pictured import PicturedText, png_of
from rlfactory.run.figures.sources import beside_sources


def test_the_picture_is_to_the_left_in_the_size_of_the_result() -> None:
    texts = [PicturedText("a", png_of(Image.new("RGB", (9, 9), (50 * i, 0, 0)))) for i in (1, 2)]
    images = torch.full((2, 3, 4, 6), 7, dtype=torch.uint8)
    found = beside_sources(images, texts)
    assert found.shape == (2, 3, 4, 12)
    assert torch.equal(found[..., 6:], images)
    assert found[:, 0, :, :6].unique().tolist() == [50, 100]


def test_without_pictures_nothing_changes() -> None:
    images = torch.zeros(2, 3, 4, 6, dtype=torch.uint8)
    assert beside_sources(images, ["a", "b"]) is images
