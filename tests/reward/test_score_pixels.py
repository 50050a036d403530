"""Rewards with a gradient: the same scores as of bytes, nearly, and a gradient in every pixel."""

import pytest
import torch
from torch.nn.functional import normalize

from rlfactory.reward.aesthetic import WIDTH, Aesthetic
from rlfactory.reward.base import RewardError
from rlfactory.reward.clipscore import ClipScore
from rlfactory.reward.combine import Combine
from rlfactory.reward.hps import resize_and_pad
from rlfactory.reward.jpeg import Compressibility
from rlfactory.reward.jpeg_standin import JpegStandIn
from rlfactory.reward.pickscore import PickScore
from rlfactory.reward.shapes_learned import ShapesLearned

CPU = torch.device("cpu")
PROMPTS = ["a red cat", "two dogs, a bird", "a red cat"]
SCENE = {"include": [{"class": "circle", "count": 1, "color": "red"}], "tag": "single_object"}


def check(reward, samples, tolerance, metadata=None):
    metadata = samples.metadata if metadata is None else metadata
    expected = reward.score(samples)[reward.main]
    pixels = (samples.images / 255).requires_grad_()
    found = reward.score_pixels(pixels, samples.prompts, metadata)
    torch.testing.assert_close(found.detach(), expected, atol=tolerance, rtol=tolerance)
    (gradient,) = torch.autograd.grad(found.sum(), pixels)
    assert gradient.isfinite().all()
    assert (gradient != 0).float().mean() > 0.8  # some are cropped
    # uphill is higher
    with torch.no_grad():
        step = 1e-3 * normalize(gradient.flatten(1), dim=1).view_as(gradient)
        higher = reward.score_pixels(pixels + step, samples.prompts, metadata)
        lower = reward.score_pixels(pixels - step, samples.prompts, metadata)
    assert (higher > lower).all()


@pytest.mark.parametrize("kind", [ClipScore, PickScore])
@pytest.mark.parametrize("size", [(64, 64), (300, 260), (224, 224)])
def test_clips(kind, size, save_clip, drawn):
    options = {"processor": None} if kind is PickScore else {}
    reward = kind(CPU, path=str(save_clip()), dtype="float32", **options)
    check(reward, drawn(PROMPTS, *size), 2e-2 if kind is PickScore else 5e-3)


def test_aesthetic(save_clip, drawn, tmp_path):
    shapes = {0: (1024, WIDTH), 2: (128, 1024), 4: (64, 128), 6: (16, 64), 7: (1, 16)}
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for i, shape in shapes.items():
        spread = (2 / shape[1]) ** 0.5
        weights[f"layers.{i}.weight"] = torch.randn(shape, generator=generator) * spread
        weights[f"layers.{i}.bias"] = torch.zeros(shape[0])
    torch.save(weights, tmp_path / "head.pth")
    reward = Aesthetic(CPU, path=str(save_clip(width=WIDTH)), head=str(tmp_path / "head.pth"))
    check(reward, drawn(PROMPTS, 100, 120), 2e-2)


def test_learned_shapes(drawn):
    samples = drawn(PROMPTS)
    scenes = [SCENE] * 3
    check(ShapesLearned(CPU), type(samples)(**{**vars(samples), "metadata": scenes}), 1e-5, scenes)


def test_a_sum_is_the_sum_of_what_counts(drawn):
    samples = drawn(PROMPTS)
    parts = {"small": JpegStandIn(), "half": JpegStandIn(quality=50), "file": Compressibility()}
    made = Combine(
        of=[*parts],
        parts=parts,
        weights={"half": 0.5, "file": 0},
        clips={"half": [-3.0, None]},
        gates={"small": {"half": -9.0}},
    )
    expected = made.score(samples)["combined"]
    pixels = samples.images / 255
    found = made.score_pixels(pixels, samples.prompts, samples.metadata)
    torch.testing.assert_close(found, expected)


def test_hps_reads_numbers_as_it_reads_bytes(drawn):
    images = drawn(PROMPTS, 40, 60).images
    torch.testing.assert_close(resize_and_pad(images / 255, 24), resize_and_pad(images, 24))


def test_without_a_gradient(drawn):
    with pytest.raises(RewardError, match="Compressibility has no gradient"):
        Compressibility().score_pixels(drawn(PROMPTS).images / 255, PROMPTS, [{}] * 3)
