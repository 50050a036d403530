"""How much moves in a video."""

import pytest
import torch

from rlfactory.reward.base import Samples
from rlfactory.reward.motion import Motion


def score(*levels: list[int]) -> dict[str, list[float]]:
    frames = torch.tensor(levels, dtype=torch.uint8)[:, :, None, None, None].expand(-1, -1, 3, 2, 2)
    samples = Samples([""] * len(levels), [{}] * len(levels), torch.arange(len(levels)), frames)
    return {name: values.tolist() for name, values in Motion().score(samples).items()}


def test_a_still_does_not_move() -> None:
    assert score([9, 9, 9]) == {"motion": [0.0], "flicker": [0.0]}


def test_steady_motion_does_not_flicker_and_noise_does() -> None:
    found = score([0, 51, 102, 153], [0, 51, 0, 51])
    assert found["motion"] == pytest.approx([0.2, 0.2])
    assert found["flicker"] == pytest.approx([0.0, 0.4], abs=1e-6)


def test_the_bounds_are_reached() -> None:
    found = score([0, 255, 0])
    assert (found["motion"], found["flicker"]) == ([1.0], [2.0])


@pytest.mark.parametrize("count", [1, 2])
def test_short_videos_have_scores(count: int) -> None:
    found = score([0, 255][:count])
    assert found == {"motion": [float(count - 1)], "flicker": [0.0]}
