from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rlfactory.prompts.ops.scenes import Clause, Placed, Scene, render, requirements
from rlfactory.reward.base import Samples, check_scores
from rlfactory.reward.shapes_noisy import ShapesNoisy, content_keys

SCENE = Scene("single_object", (Clause("circle"),))
Picture = NDArray[np.uint8]


def samples(images: Sequence[Picture]) -> Samples:
    stacked = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    count = len(images)
    return Samples([""] * count, [requirements(SCENE)] * count, torch.zeros(count), stacked)


def scene(shade: int = 225, shape: str = "circle", tint: int = 0) -> Picture:
    return render([Placed(shape, "red", 30, 30, 12)], (shade, shade - tint, shade - tint))


def test_errors_are_the_same_each_time_and_have_about_their_rate() -> None:
    pairs = [(scene(shade), scene(shade, "square")) for shade in range(200, 251)]
    reward = ShapesNoisy(error_rate=0.5, cell=1)
    images = samples([image for pair in pairs for image in pair])
    scores = reward.score(images)
    check_scores(reward, scores, len(images.prompts))
    assert torch.equal(scores["shapes_noisy"], reward.score(images)["shapes_noisy"])
    wrong = scores["shapes_noisy"] != scores["shapes"]
    # of the errors, half pass a wrong scene or fail a right one
    assert 0.1 < wrong.float().mean() < 0.4


def test_without_errors_the_noisy_score_is_gold() -> None:
    scores = ShapesNoisy(error_rate=0.0).score(samples([scene(), scene(shape="star")]))
    assert scores["shapes_noisy"].tolist() == scores["shapes"].tolist()


def test_pictures_of_one_mean_colour_have_one_key() -> None:
    images = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    both = torch.cat([images, images.flip(3)])
    first, second = content_keys(both, 8).tolist()
    assert first == second != content_keys(255 - images, 8).tolist()[0]
