import numpy as np
import pytest
import torch

from rlfactory.reward.base import (
    Reward,
    RewardError,
    Samples,
    check_scores,
    directions,
    require_images,
    score_checked,
)


class Constant(Reward):
    media = "images"
    main = "constant"

    def score(self, samples):
        return {"constant": torch.ones(len(samples.prompts))}


def samples(images=None):
    return Samples(["a", "b"], [{}, {}], torch.tensor([0, 1]), images)


def test_a_good_score_passes_and_nan_is_a_score():
    check_scores(Constant(), Constant().score(samples()), 2)
    check_scores(Constant(), {"constant": torch.tensor([1.0, torch.nan])}, 2)


@pytest.mark.parametrize(
    "scores", [[1, 0], torch.tensor([[1.0], [0.0]], dtype=torch.float64), np.array([True, False])]
)
def test_a_reward_may_return_any_form(scores):
    found = check_scores(Constant(), {"constant": scores, "more": iter([None, 2])}, 2)
    assert found["constant"].tolist() == [1, 0]
    assert {score.dtype for score in found.values()} == {torch.float32}
    assert found["more"].isnan().tolist() == [True, False]


def test_what_a_reward_sets_for_all_of_torch_is_undone():
    class Setting(Constant):
        def score(self, samples):
            torch.set_default_dtype(torch.float64)
            torch.set_default_device("meta")
            return {"constant": [1, 0]}

    assert score_checked(Setting(), samples())["constant"].tolist() == [1, 0]
    assert (torch.ones(1).dtype, torch.ones(1).device.type) == (torch.float32, "cpu")


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({"other": torch.ones(2)}, "no score 'constant'"),
        ({"constant": torch.ones(3)}, r"a Tensor \[3\]; wanted are 2 numbers"),
        ({"constant": torch.tensor([1.0, torch.inf])}, "score 1 is inf"),
        ({"constant": torch.ones(2), "more": torch.ones(1)}, "'more'"),
        ({"constant": 1.0}, "'constant': there came 1.0; wanted are 2 numbers"),
        (torch.ones(2), "a dict of tensors by name, not a Tensor"),
        (None, "not a NoneType"),
    ],
)
def test_a_bad_score_is_named(scores, message):
    with pytest.raises(RewardError, match=f"Constant.*{message}"):
        check_scores(Constant(), scores, 2)


def test_a_reward_is_judged_by_the_contract():
    assert score_checked(Constant(), samples())["constant"].tolist() == [1, 1]
    one = Samples(["a"], [{}], torch.tensor([0]))
    reward = Constant()
    reward.score = lambda _: {"constant": torch.ones(2)}
    with pytest.raises(RewardError, match="wanted are 1 numbers"):
        score_checked(reward, one)


@pytest.mark.parametrize(
    "images",
    [
        None,
        torch.zeros(2, 3, 8, 8),
        torch.zeros(3, 8, 8, dtype=torch.uint8),
        torch.zeros(2, 8, 8, 3, dtype=torch.uint8),
    ],
)
def test_pictures_are_uint8_with_three_channels_first(images):
    with pytest.raises(TypeError, match="images"):
        require_images(samples(images))


@pytest.mark.slow
def test_reward_and_prompts_know_nothing_of_models():
    import subprocess
    import sys

    code = (
        "import sys, rlfactory.reward.shapes, rlfactory.reward.jpeg, rlfactory.prompts.shapes,"
        "rlfactory.prompts.file;"
        "print([m for m in ('diffusers', 'transformers', 'rlfactory.model') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_score_that_trains_is_better_higher_and_others_as_declared():
    made = Constant()
    made.better = {"blur": "lower"}
    assert directions(made) == {"blur": "lower", "constant": "higher"}
    made.better = {"blur": "less"}
    with pytest.raises(RewardError, match=r"better\['blur'\] is 'less'; allowed is higher"):
        directions(made)
