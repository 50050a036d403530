import pytest
import torch
from torch.nn.functional import interpolate

from rlfactory.reward.base import Samples, check_scores, directions
from rlfactory.reward.jpeg import jpeg_kilobytes
from rlfactory.reward.jpeg_standin import (
    JpegStandIn,
    coefficients,
    estimated_kilobytes,
    quantisation,
)


def pictures(side):
    """Smooth colours, with noise of four strengths, and blocks; uint8."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for noise in (0, 0.02, 0.1, 0.3):
        coarse = torch.rand(4, 3, 4, 4, generator=generator)
        smooth = interpolate(coarse, (side, side), mode="bicubic")
        found.append(smooth + noise * torch.randn(smooth.shape, generator=generator))
    found.append(interpolate(torch.rand(4, 3, side // 8, side // 8), (side, side)))
    return (torch.cat(found).clamp(0, 1) * 255).round().to(torch.uint8)


@pytest.mark.parametrize("quality", [50, 75, 95])
def test_it_is_near_the_files_size(quality):
    """Half of the estimates within 15 %, and nearly the order of sizes."""
    sides = [pictures(side) for side in (64, 128)]
    sizes = torch.cat([jpeg_kilobytes(images, quality) for images in sides])
    found = torch.cat([estimated_kilobytes(images / 255, quality) for images in sides])
    assert ((found - sizes) / sizes).abs().median() < 0.15
    assert torch.corrcoef(torch.stack([found.log(), sizes.log()]))[0, 1] > 0.97


def test_tables_are_the_standards():
    """The first rows of tables K.1 and K.2 of ITU-T T.81, which are those of quality 50."""
    luma, chroma = quantisation(50)
    assert luma[0].tolist() == [16, 11, 10, 16, 24, 40, 51, 61]
    assert chroma[0].tolist() == [17, 18, 24, 47, 99, 99, 99, 99]


def test_coefficients_are_cosine_transforms():
    """A block that is one cosine has one coefficient; its energy is kept."""
    place = torch.arange(8).double()
    wave = torch.cos((2 * place + 1) * 3 * torch.pi / 16)
    plane = torch.zeros(1, 8, 11, dtype=torch.float64)
    plane[0, :, :8] = wave.expand(8, 8)
    plane[0, :, 8:] = 2.0
    found = coefficients(plane, torch.full((8, 8), 2.0))
    assert found.shape == (1, 2, 8, 8)
    # at row frequency 0 and column frequency 3: sqrt(8) sqrt(4) / 2; then 2 everywhere: 16 / 2
    expected = torch.zeros(2, 8, 8, dtype=torch.float64)
    expected[0, 0, 3], expected[1, 0, 0] = 8**0.5, 8.0
    torch.testing.assert_close(found[0], expected)


def test_gradient():
    pixels = torch.rand(2, 3, 13, 20, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: estimated_kilobytes(x, 80), pixels)


def test_scores_and_what_is_better():
    images = pictures(64)
    count = len(images)
    samples = Samples([""] * count, [{}] * count, torch.arange(count), images)
    small, large = JpegStandIn(unit=2.0), JpegStandIn(goal="large")
    scores = check_scores(small, small.score(samples), count)
    torch.testing.assert_close(scores["jpeg_kb"], jpeg_kilobytes(images, 95))
    found = small.score_pixels(images / 255, samples.prompts, samples.metadata)
    torch.testing.assert_close(scores["jpeg_standin"], found)
    torch.testing.assert_close(large.score(samples)["jpeg_standin"], -2 * found)
    assert (directions(small)["jpeg_kb"], directions(large)["jpeg_kb"]) == ("lower", "higher")
    with pytest.raises(ValueError, match="quality=0"):
        JpegStandIn(quality=0)
