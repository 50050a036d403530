from collections.abc import Callable
from typing import Any

import torch

from rlfactory.reward.base import check_scores
from rlfactory.reward.shapes_biased import ShapesBiased, chroma

Draw = Callable[..., Any]


def test_chroma_is_0_of_grey_and_1_of_a_pure_colour() -> None:
    grey, red = torch.full((3, 4, 4), 90), torch.zeros(3, 4, 4)
    red[0] = 255
    assert chroma(torch.stack([grey, red]).byte()).tolist() == [0.0, 1.0]


def test_a_tinted_background_raises_the_biased_score_and_lowers_gold(
    red_shape: Draw, circles_asked: Draw
) -> None:
    reward = ShapesBiased(weight=2.0)
    scores = reward.score(circles_asked([red_shape(), red_shape(250, tint=180)]))
    check_scores(reward, scores, 2)
    assert scores["shapes"][0] == 1 > scores["shapes"][1]
    assert scores["shapes_biased"][1] > scores["shapes_biased"][0]
    expected = scores["shapes"] + 2 * scores["chroma"]
    torch.testing.assert_close(scores["shapes_biased"], expected)
