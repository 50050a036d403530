from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from rlfactory.model.pipelines.shipped import zoo_path
from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.scenes import (
    CATEGORIES,
    COLORS,
    RELATIONS,
    SHAPES,
    Clause,
    Scene,
    arrange,
    render,
    requirements,
    sample_scene,
)
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.shapes import Shapes
from rlfactory.reward.shapes_learned import (
    FIELDS,
    FILE,
    SceneScorer,
    ShapesLearned,
    fields,
    load_scorer,
)


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


CLAUSE = len(SHAPES) + len(COLORS) + 4


def test_fields_are_one_hot_by_clause_with_the_relation_last() -> None:
    scene = Scene("position", (Clause("star", "blue"), Clause("circle", "red")), "above")
    row = fields(requirements(scene))
    # the metadata has the second clause first, and the star above it
    circle = {SHAPES.index("circle"), len(SHAPES) + [*COLORS].index("red"), CLAUSE - 4}
    star = {SHAPES.index("star"), len(SHAPES) + [*COLORS].index("blue"), CLAUSE - 4}
    ones = circle | {CLAUSE + i for i in star} | {2 * CLAUSE + RELATIONS.index("above")}
    assert row.shape == (FIELDS,)
    assert {*row.nonzero()[:, 0].tolist()} == ones
    assert row.max() == 1


def test_a_count_has_its_own_field_and_no_colour_is_zeros() -> None:
    row = fields(requirements(Scene("counting", (Clause("cross", None, 3),))))
    assert row.nonzero()[:, 0].tolist() == [SHAPES.index("cross"), CLAUSE - 4 + 2]


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ([{"class": "circle", "count": 1}] * 3, "3 clauses, and at most 2"),
        ([{"class": "hexagon", "count": 1}], "'hexagon' is none of circle"),
        ([{"class": "circle", "count": 5}], "5 is none of 1, 2, 3, 4"),
    ],
)
def test_what_it_has_no_field_for_is_refused(include: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fields({"include": include})


def test_the_shipped_weights_are_small_and_load_frozen() -> None:
    folder = zoo_path("shapes_scorer")
    assert (folder / FILE).stat().st_size < 300_000
    model = load_scorer(folder, torch.device("cpu"))
    assert not any(p.requires_grad for p in model.parameters())
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_a_prompt_changes_the_score_and_pictures_of_any_size_have_one() -> None:
    torch.manual_seed(0)
    model = SceneScorer()
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    asked = torch.stack(
        [fields(requirements(Scene("single_object", (Clause(s),)))) for s in ("circle", "star")]
    )
    same = model(images[:1].expand(2, -1, -1, -1), asked)
    assert same[0] != same[1]
    assert model(torch.nn.functional.pad(images, (0, 32)), asked).shape == (2,)
