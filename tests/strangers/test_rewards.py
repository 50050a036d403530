"""What functions and rewards of strangers return: scores, or one line that says what came."""

import runpy

import pytest
import torch
from cases import python_cases

from rlfactory.reward.base import Reward, RewardError, Samples, score_checked
from rlfactory.reward.function import Function
from rlfactory.reward.image_function import ImageFunction


def samples():
    return Samples(
        prompts=["a", "b", "c"],
        metadata=[{}, {}, {}],
        groups=torch.arange(3),
        images=torch.zeros(3, 3, 4, 4, dtype=torch.uint8),
        texts=["x", "y", "z"],
    )


def reward_of(case):
    """A `Reward` whose score is what the case's function returns."""

    class Own(Reward):
        media, main = "texts", "scored"

        def score(self, _):
            return {"scored": case["scored"]()}

    return Own()


@pytest.mark.parametrize("path", python_cases("rewards"))
@pytest.mark.parametrize("way", ["texts", "images", "class"])
def test_right_or_one_line(path, way):
    case = runpy.run_path(str(path))
    is_mapping = isinstance(case["scored"](), dict) or "info" in path.stem
    if way == "class" and is_mapping:
        return  # forms of functions alone
    made = {"texts": Function, "images": ImageFunction}
    reward = made[way](function=f"{path}:scored") if way in made else reward_of(case)
    if "SAYS" in case:
        with pytest.raises(RewardError) as raised:
            score_checked(reward, samples())
        said = str(raised.value)
        assert all(part in said for part in case["SAYS"].split("; ")), said
        assert "\n" not in said
        return
    found = score_checked(reward, samples())["scored"]
    assert found.dtype == torch.float32
    assert not found.requires_grad
    assert [None if v != v else v for v in found.tolist()] == case["EXPECTED"]
