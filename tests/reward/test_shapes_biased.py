from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rlfactory.prompts.ops.scenes import Clause, Placed, Scene, render, requirements
from rlfactory.reward.base import Samples, check_scores
from rlfactory.reward.shapes_biased import ShapesBiased, chroma

SCENE = Scene("single_object", (Clause("circle"),))
Picture = NDArray[np.uint8]


def samples(images: Sequence[Picture]) -> Samples:
    stacked = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    count = len(images)
    return Samples([""] * count, [requirements(SCENE)] * count, torch.zeros(count), stacked)


def scene(shade: int = 225, shape: str = "circle", tint: int = 0) -> Picture:
    return render([Placed(shape, "red", 30, 30, 12)], (shade, shade - tint, shade - tint))


def test_chroma_is_0_of_grey_and_1_of_a_pure_colour() -> None:
    grey, red = torch.full((3, 4, 4), 90), torch.zeros(3, 4, 4)
    red[0] = 255
    assert chroma(torch.stack([grey, red]).byte()).tolist() == [0.0, 1.0]


def test_a_tinted_background_raises_the_biased_score_and_lowers_gold() -> None:
    reward = ShapesBiased(weight=2.0)
    scores = reward.score(samples([scene(), scene(250, tint=180)]))
    check_scores(reward, scores, 2)
    assert scores["shapes"][0] == 1 > scores["shapes"][1]
    assert scores["shapes_biased"][1] > scores["shapes_biased"][0]
    expected = scores["shapes"] + 2 * scores["chroma"]
    torch.testing.assert_close(scores["shapes_biased"], expected)
