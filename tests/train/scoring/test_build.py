"""An image reward of videos."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, RewardError, Samples, check_scores, require_images
from rlfactory.train.scoring.build import FrameMean, build_rewards


class Brightness(Reward):
    """The mean of an image's pixels; NaN of black ones."""

    media = "images"
    metadata = ("wanted",)
    best_score = 255.0
    main = "brightness"

    def __init__(self) -> None:
        self.seen: list[Samples] = []
        self.state: dict[str, Any] = {"count": 3}

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        raise RewardError(f"checked {len([*prompts])}")

    def score(self, samples: Samples) -> dict[str, Tensor]:
        self.seen.append(samples)
        means = require_images(samples).float().mean((1, 2, 3))
        return {"brightness": torch.where(means > 0, means, torch.nan)}

    def state_dict(self) -> dict[str, Any]:
        return self.state


def videos(*levels: list[int]) -> Samples:
    frames = torch.tensor(levels, dtype=torch.uint8)[:, :, None, None, None]
    rows = [{"wanted": i} for i in range(len(levels))]
    groups = torch.tensor([7] * len(levels))
    return Samples(
        [f"p{i}" for i in range(len(levels))], rows, groups, frames.expand(-1, -1, 3, 4, 5)
    )


def test_a_video_has_the_mean_over_evenly_spaced_frames() -> None:
    reward = FrameMean(Brightness(), frames=3)
    found = reward.score(videos([10, 99, 20, 99, 60], [1, 0, 2, 0, 3]))["brightness"]
    assert found.tolist() == [30.0, 2.0]
    check_scores(reward, {"brightness": found}, 2)


def test_each_frame_is_scored_with_its_videos_prompt() -> None:
    inner = Brightness()
    FrameMean(inner, frames=2).score(videos([1, 2, 3], [4, 5, 6]))
    (seen,) = inner.seen
    assert seen.prompts == ["p0", "p0", "p1", "p1"]
    assert [row["wanted"] for row in seen.metadata] == [0, 0, 1, 1]
    assert seen.groups.tolist() == [7] * 4
    assert seen.images is not None
    assert seen.images[:, 0, 0, 0].tolist() == [1, 3, 4, 6]


def test_frames_without_a_score_do_not_count() -> None:
    found = FrameMean(Brightness(), frames=3).score(videos([0, 10, 20], [0, 0, 0]))["brightness"]
    assert found[0] == 15.0
    assert found[1].isnan()


def test_what_the_image_reward_says_holds() -> None:
    reward = FrameMean(Brightness(), frames=3)
    assert (reward.main, reward.media, reward.metadata) == ("brightness", "videos", ("wanted",))
    assert reward.best_score == 255.0
    assert reward.state_dict() == {"count": 3}
    with pytest.raises(RewardError, match="checked 1"):
        reward.check_prompts([Prompt("a", {})])


def test_images_are_no_videos() -> None:
    with pytest.raises(TypeError, match="scores videos"):
        FrameMean(Brightness(), 2).score(
            Samples([""], [{}], torch.zeros(1), torch.zeros(1, 3, 4, 4))
        )


def test_what_a_users_file_sets_for_all_of_torch_is_undone(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import torch\ntorch.set_grad_enabled(False)\ndef ones(completions): ...\n")
    reward = {"_target_": "rlfactory.reward.function.Function", "function": f"{file}:ones"}
    model = {"_target_": "rlfactory.model.causal_lm.CausalLM"}
    config = {"model": model, "reward": reward, "eval_rewards": {"parts": {}}}
    build_rewards(config | {"scoring": {"background": "thread"}}, torch.device("cpu"))
    assert torch.is_grad_enabled()
