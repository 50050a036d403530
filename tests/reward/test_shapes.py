from pathlib import Path

import numpy as np
import pytest
import torch
from load_script import load_script

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.scenes import COLORS, Clause, Placed, Scene, render, requirements
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.shapes import Shapes

SCRIPT = Path(__file__).parents[2] / "scripts" / "validate_shapes.py"
validation = load_script(SCRIPT)

SCENES = 100
CASES = [
    (name, right, floor)
    for table, right, floor in (
        (validation.RIGHT, True, 0.995),
        (validation.WORN, True, 0.95),
        (validation.WRONG, False, 0.995),
    )
    for name in table
]
MAKERS = validation.RIGHT | validation.WORN | validation.WRONG


@pytest.mark.slow
@pytest.mark.parametrize(("name", "right", "floor"), CASES)
def test_validation(name, right, floor):
    """The script's table on few scenes; its figures on many are in docs/reward/shapes.md."""
    make, categories = MAKERS[name]
    shares = [validation.agreement(make, c, right, SCENES, seed=7) for c in categories]
    assert np.mean(shares, axis=0).min() >= floor, dict(zip(categories, shares, strict=True))


def scored(images, scene, **options):
    images = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    count = len(images)
    samples = Samples([""] * count, [requirements(scene)] * count, torch.zeros(count), images)
    reward = Shapes(**options)
    scores = reward.score(samples)
    check_scores(reward, scores, count)
    return scores["shapes"].tolist(), scores["shapes_strict"].tolist()


def test_blobs_are_faults_unless_ignored():
    scene = Scene("single_object", (Clause("circle"),))
    clean = render([Placed("circle", "red", 20, 20, 9)], (225, 225, 225))
    smeared = clean.copy()
    smeared[50:56, 10:50] = COLORS["green"]
    assert scored([clean, smeared], scene) == ([1.0, 0.5], [1.0, 0.0])
    assert scored([clean, smeared], scene, blobs="ignored") == ([1.0, 1.0], [1.0, 1.0])


def test_the_credit_for_a_wrong_relation_is_an_option():
    clauses = (Clause("circle", "red"), Clause("square", "blue"))
    scene = Scene("position", clauses, "left of")
    circle, square = Placed("circle", "red", 45, 30, 9), Placed("square", "blue", 15, 30, 9)
    image = render([circle, square], (225, 225, 225))
    assert scored([image], scene)[0] == pytest.approx([4 / 5])
    assert scored([image], scene, relation_credit="flow_grpo")[0] == pytest.approx([5 / 6])


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ([{"shape": "circle", "count": 1}], "has no `class` and `count`"),
        ([{"class": "hexagon", "count": 1}], "knows no 'hexagon'; it knows circle, square"),
        ([{"class": "circle", "count": 0}], "count=0"),
    ],
)
def test_metadata_that_can_not_be_scored_is_told_before_a_run(include, message):
    good = Prompt("a circle", {"include": [{"class": "circle", "count": 1}]})
    Shapes().check_prompts([good])
    with pytest.raises(RewardError, match=message):
        Shapes().check_prompts([good, Prompt("a hexagon", {"include": include})])


def test_no_samples_give_no_scores():
    empty = Samples([], [], torch.zeros(0), torch.zeros(0, 3, 64, 64, dtype=torch.uint8))
    scores = Shapes().score(empty)
    check_scores(Shapes(), scores, 0)


def test_touching_objects_still_count():
    for category in validation.PAIRS:
        _, strict = validation.scores(validation.touching, category, 100, seed=1)
        assert (strict == 1).mean() >= 0.95
