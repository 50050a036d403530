import numpy as np
import pytest
import torch

from rlfactory.prompts.ops.scenes import Clause, Placed, Scene, render, requirements
from rlfactory.reward.base import Samples, check_scores
from rlfactory.reward.shapes_biased import ShapesBiased, chroma
from rlfactory.reward.shapes_noisy import ShapesNoisy, content_keys

SCENE = Scene("single_object", (Clause("circle"),))


def samples(*images):
    images = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    count = len(images)
    return Samples([""] * count, [requirements(SCENE)] * count, torch.zeros(count), images)


def scene(shade=225, shape="circle", tint=0):
    return render([Placed(shape, "red", 30, 30, 12)], (shade, shade - tint, shade - tint))


def test_chroma_is_0_of_grey_and_1_of_a_pure_colour():
    grey, red = torch.full((3, 4, 4), 90), torch.zeros(3, 4, 4)
    red[0] = 255
    assert chroma(torch.stack([grey, red]).byte()).tolist() == [0.0, 1.0]


def test_a_tinted_background_raises_the_biased_score_and_lowers_gold():
    reward = ShapesBiased(weight=2.0)
    scores = reward.score(samples(scene(), scene(250, tint=180)))
    check_scores(reward, scores, 2)
    assert scores["shapes"][0] == 1 > scores["shapes"][1]
    assert scores["shapes_biased"][1] > scores["shapes_biased"][0]
    expected = scores["shapes"] + 2 * scores["chroma"]
    torch.testing.assert_close(scores["shapes_biased"], expected)


def test_errors_are_the_same_each_time_and_have_about_their_rate():
    pairs = [(scene(shade), scene(shade, "square")) for shade in range(200, 251)]
    reward = ShapesNoisy(error_rate=0.5, cell=1)
    images = samples(*[image for pair in pairs for image in pair])
    scores = reward.score(images)
    check_scores(reward, scores, len(images.prompts))
    assert torch.equal(scores["shapes_noisy"], reward.score(images)["shapes_noisy"])
    wrong = scores["shapes_noisy"] != scores["shapes"]
    # of the errors, half pass a wrong scene or fail a right one
    assert 0.1 < wrong.float().mean() < 0.4


def test_without_errors_the_noisy_score_is_gold():
    scores = ShapesNoisy(error_rate=0.0).score(samples(scene(), scene(shape="star")))
    assert scores["shapes_noisy"].tolist() == scores["shapes"].tolist()


def test_an_error_rate_outside_of_0_to_1_is_refused():
    with pytest.raises(ValueError, match=r"reward.error_rate=2.*type reward.error_rate=0.3"):
        ShapesNoisy(error_rate=2)


def test_pictures_of_one_mean_colour_have_one_key():
    images = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    both = torch.cat([images, images.flip(3)])
    first, second = content_keys(both, 8).tolist()
    assert first == second != content_keys(255 - images, 8).tolist()[0]
