from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from rlfactory.reward.base import Samples, check_scores, directions
from rlfactory.reward.jpeg import Compressibility, Incompressibility


def samples():
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (64, 64, 3), np.uint8)
    ramp = np.broadcast_to(np.arange(64, dtype=np.uint8)[:, None, None], (64, 64, 3))
    images = torch.from_numpy(np.stack([noise, ramp, np.zeros_like(noise)])).permute(0, 3, 1, 2)
    return Samples(["", "", ""], [{}] * 3, torch.arange(3), images)


def size_on_disk(image, quality):
    file = BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=quality)
    return len(file.getvalue())


@pytest.mark.parametrize("quality", [50, 95])
def test_the_score_is_the_file_size(quality):
    sizes = torch.tensor([size_on_disk(image, quality) / 1000 for image in samples().images])
    for reward, expected in (
        (Compressibility(quality=quality), -sizes),
        (Compressibility(quality=quality, unit=500.0), -sizes / 500),
        (Incompressibility(quality=quality), sizes),
    ):
        scores = reward.score(samples())
        check_scores(reward, scores, 3)
        torch.testing.assert_close(scores[reward.main], expected)
        torch.testing.assert_close(scores["jpeg_kb"], sizes)


def test_noise_is_larger_than_a_ramp_and_a_ramp_than_black():
    noise, ramp, black = Compressibility().score(samples())["compressibility"].tolist()
    assert noise < ramp < black < 0


@pytest.mark.parametrize("reward", [Compressibility, Incompressibility])
@pytest.mark.parametrize("quality", [0, 101])
def test_quality_out_of_range(reward, quality):
    with pytest.raises(ValueError, match=f"quality={quality}"):
        reward(quality=quality)


def test_the_size_is_better_as_the_reward_asks() -> None:
    assert directions(Compressibility())["jpeg_kb"] == "lower"
    assert directions(Incompressibility())["jpeg_kb"] == "higher"
