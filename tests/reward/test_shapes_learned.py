from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.scenes import (
    CATEGORIES,
    Scene,
    arrange,
    render,
    requirements,
    sample_scene,
)
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.shapes import Shapes
from rlfactory.reward.shapes_learned import ShapesLearned


@pytest.fixture(scope="module")
def reward() -> ShapesLearned:
    return ShapesLearned(torch.device("cpu"))


def scenes(count: int) -> list[Scene]:
    rng = np.random.default_rng(5)
    return [sample_scene(CATEGORIES[i % len(CATEGORIES)], rng) for i in range(count)]


def drawn(shown: list[Scene], asked: list[Mapping[str, Any]]) -> Samples:
    rng = np.random.default_rng(6)
    pictures = [render(arrange(scene, rng), (225, 225, 225)) for scene in shown]
    images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
    return Samples([""] * len(shown), asked, torch.arange(len(shown)), images)


def test_it_predicts_the_gold_score_and_reports_it(reward: ShapesLearned) -> None:
    shown = scenes(120)
    asked = [requirements(scene) for scene in [*shown[:60], *shown[61:], shown[60]]]
    samples = drawn(shown, asked)
    scores = reward.score(samples)
    check_scores(reward, scores, 120)
    assert torch.equal(scores["shapes"], Shapes().score(samples)["shapes"])
    both = torch.stack([scores["shapes_learned"], scores["shapes"]])
    assert torch.corrcoef(both)[0, 1] > 0.6
    assert 0 <= both.min() <= both.max() <= 1


def test_it_can_be_wrong(reward: ShapesLearned) -> None:
    """Far from its training pictures it gives other scores than gold."""
    asked = [requirements(scene) for scene in scenes(64)]
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (64, 3, 64, 64), dtype=torch.uint8, generator=generator)
    scores = reward.score(Samples([""] * 64, asked, torch.arange(64), noise))
    assert (scores["shapes_learned"] - scores["shapes"]).abs().max() > 0.01


def test_prompts_that_it_cannot_read_are_refused(reward: ShapesLearned) -> None:
    known = [Prompt("x", requirements(scene)) for scene in scenes(6)]
    reward.check_prompts(known)
    with pytest.raises(RewardError, match="'a hexagon': 'hexagon' is none of .*reward=shapes "):
        reward.check_prompts([Prompt("a hexagon", {"include": [{"class": "hexagon", "count": 1}]})])
    with pytest.raises(RewardError, match="lacks include"):
        reward.check_prompts([Prompt("nothing", {})])
