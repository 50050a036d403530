"""Z-Image: prompts have their own lengths, and the pipeline's guidance counts from 0."""

from pathlib import Path

import pytest
import torch

from rlfactory.model.pipelines.embedding_cache import LENGTHS
from rlfactory.model.z_image import ZImage


def opened(folder: Path, **options: object) -> ZImage:
    return ZImage(torch.device("cpu"), path=str(folder), size=64, text_tokens=128, **options)


def test_lengths_stay_on_the_cpu_and_padding_is_not_read(z_image_folder: Path) -> None:
    model = opened(z_image_folder)
    text = model.encode(["a star", "two much longer rows of blue squares and one red star"]).tensors
    assert text[LENGTHS].device.type == "cpu"
    assert text[LENGTHS][1] > text[LENGTHS][0] + 40
    padding = torch.arange(128) >= text[LENGTHS][:, None]
    changed = {**text, "sequence": text["sequence"].masked_fill(padding[..., None], 7.0)}
    x, t = torch.randn(2, *model.resolution.shape), torch.tensor([0.3, 0.9])
    with torch.no_grad():
        found, expected = model._predict(x, t, changed), model._predict(x, t, text)
        assert torch.equal(found, expected)
        alone = model._predict(x[:1], t[:1], {name: rows[:1] for name, rows in text.items()})
    torch.testing.assert_close(alone, expected[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("guidance", "scale"), [(1.0, 0.0), (0.0, 0.0), (5.0, 4.0)])
def test_the_pipelines_scale_is_one_less(
    z_image_folder: Path, guidance: float, scale: float
) -> None:
    arguments = opened(z_image_folder, guidance=guidance).pipeline_arguments()
    assert arguments["guidance_scale"] == scale
