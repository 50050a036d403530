"""A function of pictures, as ddpo's and flow_grpo's users write them."""

import math
import sys

import numpy as np
import pytest
import torch

from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.image_function import ImageFunction, VideoFunction

CODE = """
from threading import Event

import numpy as np
import torch

release = Event()
seen = {}

def look(images, prompts, metadata):
    seen.update(images=images, prompts=prompts, metadata=metadata)
    return seen.get("result", [1.0, 2.0])

def meddles(images, prompts, metadata):
    images.fill_(0); prompts.clear(); metadata[0].clear()
    return [0.0, 0.0]

def redness(images, prompts, metadata):
    return images[:, 0].float().mean((1, 2)), {"info": "none"}

def raises(images, prompts, metadata):
    raise KeyError("no such thing")

def hangs(images, prompts, metadata):
    release.wait(30)

def jpeg_compressibility():
    return look

def pickscore_score(device):
    seen.update(device=device)
    return look

class Scorer:
    def __init__(self, device="cuda"):
        seen.update(device=device)

    def __call__(self, images, prompts, metadata):
        return look(images, prompts, metadata)

def broken(device):
    raise OSError("no weights")

def no_function(device):
    return 1.0
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path / "mine.py"


def samples():
    images = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).to(torch.uint8)
    return Samples(["x", "y"], [{"k": 1}, {}], torch.tensor([0, 1]), images)


@pytest.fixture
def look(path):
    def look(result=(1.0, 2.0), **options):
        reward = ImageFunction(function=f"{path}:look", **options)
        seen = reward.call.__globals__["seen"]
        seen["result"] = result
        scores = reward.score(samples())
        check_scores(reward, scores, 2)
        return scores["look"].tolist(), seen

    return look


def test_images_in_four_forms(look):
    images = samples().images
    given = look()[1]["images"]
    assert torch.equal(given, images)
    given = look(images="unit")[1]["images"]
    assert torch.equal(given, images / 255)
    given = look(images="numpy")[1]["images"]
    assert (given.shape, given.dtype) == ((2, 4, 5, 3), np.uint8)
    assert np.array_equal(given[1, 2, 3], images[1, :, 2, 3].numpy())
    given = look(images="pil")[1]["images"]
    assert [(image.size, image.mode) for image in given] == [((5, 4), "RGB")] * 2
    assert given[1].getpixel((3, 2)) == tuple(images[1, :, 2, 3].tolist())


@pytest.mark.parametrize("name", ["jpeg_compressibility", "pickscore_score", "Scorer"])
def test_what_makes_a_function_gets_the_pixels_of_its_kin(path, name):
    reward = ImageFunction(torch.device("meta"), function=f"{path}:{name}")
    assert reward.score(samples())[name].tolist() == [1, 2]
    seen = sys.modules["rlfactory_function_mine"].seen
    assert torch.equal((seen["images"] * 255).round().to(torch.uint8), samples().images)
    assert seen.get("device", torch.device("meta")).type == "meta"


@pytest.mark.parametrize(
    ("name", "said"), [("broken", "raised OSError"), ("no_function", "makes 1.0, which")]
)
def test_what_makes_none_is_refused(path, name, said):
    with pytest.raises(RewardError, match=f"{name} {said}"):
        ImageFunction(function=f"{path}:{name}")


def test_prompts_and_metadata_are_lists(look):
    _, seen = look()
    assert seen["prompts"] == ["x", "y"]
    assert seen["metadata"] == [{"k": 1}, {}]


@pytest.mark.parametrize(
    "result",
    [
        [1.0, 0.0],
        (1.0, 0.0),
        [1, None],
        (1.0, None),
        np.array([1.0, 0.0]),
        np.array([1, 0]),
        torch.tensor([1.0, 0.0], dtype=torch.bfloat16, requires_grad=True),
        torch.tensor([True, False]),
        ([1.0, 0.0], {"about": "them"}),
        (np.array([1.0, math.nan]), {}),
        ((1.0, 0.0), None),
    ],
    ids=str,
)
def test_scores_of_any_kind(look, result):
    first, second = look(result)[0]
    assert first == 1
    assert second == 0 or math.isnan(second)


def test_scores_and_info(path):
    scores = ImageFunction(function=f"{path}:redness").score(samples())
    assert scores["redness"].tolist() == pytest.approx([9.5, 69.5])


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "there came None"),
        (3.0, "there came 3.0"),
        (np.zeros((1, 2)), r"there came a ndarray \[1, 2\]"),
        (torch.zeros(()), r"there came a Tensor \[\]"),
        ([1.0], "there came 1 of them"),
        (([1.0] * 3, {}), "there came 3 of them"),
        ([1.0, "good"], "score 1 is 'good'"),
        ([0.0, math.inf], "score 1 is inf"),
    ],
)
def test_results_of_the_wrong_kind(look, result, said):
    with pytest.raises(RewardError, match=f"^reward look: {said}"):
        look(result)


@pytest.mark.parametrize(
    ("name", "said"),
    [("raises", "no such thing"), ("hangs", "gave no answer within 0.05 s")],
)
def test_a_call_that_fails_is_logged_and_nothing_is_scored(path, caplog, name, said):
    reward = ImageFunction(function=f"{path}:{name}", timeout=0.05 if name == "hangs" else 60)
    assert reward.score(samples())[name].isnan().all()
    assert said in caplog.text
    reward.call.__globals__["release"].set()


def test_samples_are_not_changed(path):
    ours = samples()
    ImageFunction(function=f"{path}:meddles").score(ours)
    assert torch.equal(ours.images, samples().images)
    assert (ours.prompts, ours.metadata) == (["x", "y"], [{"k": 1}, {}])


def test_a_function_that_is_not_there(path):
    with pytest.raises(RewardError, match="has no lok"):
        ImageFunction(function=f"{path}:lok")


def test_videos_in_three_forms(path):
    videos = torch.arange(2 * 4 * 3 * 2 * 5).reshape(2, 4, 3, 2, 5).to(torch.uint8)
    asked = Samples(["x", "y"], [{}, {}], torch.tensor([0, 1]), videos)
    given = {}
    for form in ("tensor", "numpy", "pil"):
        reward = VideoFunction(function=f"{path}:look", images=form)
        check_scores(reward, reward.score(asked), 2)
        given[form] = reward.call.__globals__["seen"]["images"]
    assert torch.equal(given["tensor"], videos)
    assert given["numpy"].shape == (2, 4, 2, 5, 3)
    assert np.array_equal(given["numpy"][1, 2, 1, 3], videos[1, 2, :, 1, 3].numpy())
    assert given["pil"][1][2].getpixel((3, 1)) == tuple(videos[1, 2, :, 1, 3].tolist())


def test_a_function_of_videos_gets_no_images(path):
    with pytest.raises(TypeError, match="scores videos"):
        VideoFunction(function=f"{path}:look").score(samples())


def test_a_function_of_other_arguments_is_refused_before_it_is_called(path):
    path.write_text(
        "def short(images): ...\ndef keyword(images, prompts, metadata, *, more): ...\n"
    )
    for name in ("short", "keyword"):
        with pytest.raises(
            RewardError, match=rf"{name} is called with \(images, prompts, metadata"
        ):
            ImageFunction(function=f"{path}:{name}")
