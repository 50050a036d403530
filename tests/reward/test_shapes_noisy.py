from collections.abc import Callable
from typing import Any

import torch

from rlfactory.reward.base import check_scores
from rlfactory.reward.shapes_noisy import ShapesNoisy, content_keys

Draw = Callable[..., Any]


def test_errors_are_the_same_each_time_and_have_about_their_rate(
    red_shape: Draw, circles_asked: Draw
) -> None:
    pairs = [(red_shape(shade), red_shape(shade, "square")) for shade in range(200, 251)]
    reward = ShapesNoisy(error_rate=0.5, cell=1)
    images = circles_asked([image for pair in pairs for image in pair])
    scores = reward.score(images)
    check_scores(reward, scores, len(images.prompts))
    assert torch.equal(scores["shapes_noisy"], reward.score(images)["shapes_noisy"])
    wrong = scores["shapes_noisy"] != scores["shapes"]
    # of the errors, half pass a wrong scene or fail a right one
    assert 0.1 < wrong.float().mean() < 0.4


def test_without_errors_the_noisy_score_is_gold(red_shape: Draw, circles_asked: Draw) -> None:
    scores = ShapesNoisy(error_rate=0.0).score(
        circles_asked([red_shape(), red_shape(shape="star")])
    )
    assert scores["shapes_noisy"].tolist() == scores["shapes"].tolist()


def test_pictures_of_one_mean_colour_have_one_key() -> None:
    images = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    both = torch.cat([images, images.flip(3)])
    first, second = content_keys(both, 8).tolist()
    assert first == second != content_keys(255 - images, 8).tolist()[0]
