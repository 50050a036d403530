import math

import numpy as np
import pytest

from rlfactory.prompts.ops.scenes import CATEGORIES, requirements, sample_scene
from rlfactory.reward.ops.geneval_score import (
    Detection,
    relative_position,
    soft_score,
    strict_score,
)


def item(name, color="red", x=10.0, y=10.0, size=8.0):
    return Detection(name, color, (x - size / 2, y - size / 2, x + size / 2, y + size / 2))


def perfect(scene):
    """Detections that meet a scene exactly; in a relation, the first object stands in it."""
    where = {"left of": (10, 30), "right of": (50, 30), "above": (30, 10), "below": (30, 50)}
    found = []
    for number, clause in enumerate(scene.clauses):
        x, y = where[scene.relation] if scene.relation and number == 0 else (30, 30)
        found += [item(clause.shape, clause.color or "red", x, y)] * clause.count
    return found


def scenes(count=300):
    rng = np.random.default_rng(0)
    return [sample_scene(category, rng) for category in CATEGORIES for _ in range(count // 6)]


A_LEFT = {
    "include": [
        {"class": "a", "count": 1},
        {"class": "b", "count": 1, "position": ["left of", 0]},
    ]
}
RIGHT = [item("a", x=40), item("b", x=10)]
WRONG = [item("a", x=10), item("b", x=40)]


def test_published_soft_scores():
    """From executing flow_grpo's gen_eval.py on these detections."""
    assert soft_score(RIGHT, A_LEFT, relation_credit="flow_grpo") == 1.0
    assert soft_score(WRONG, A_LEFT, relation_credit="flow_grpo") == 0.75
    assert soft_score(RIGHT[1:], A_LEFT, relation_credit="flow_grpo") == pytest.approx(1 / 3)
    one = {"include": [{"class": "a", "count": 1}]}
    assert soft_score([item("a")] * 16, one, clamp=False) == -14


def test_published_soft_scores_of_a_relation_of_several_objects():
    """The published loops end at the first wrong pair: one 0, however many pairs are wrong."""
    two = {"include": [A_LEFT["include"][0], A_LEFT["include"][1] | {"count": 2}]}
    three = {"include": [{"class": "a", "count": 2}, A_LEFT["include"][1] | {"count": 3}]}
    right, wrong = item("b", x=10), item("b", x=70)

    def score(metadata, *found):
        return soft_score(found, metadata, relation_credit="flow_grpo")

    assert score(two, item("a", x=40), wrong, wrong) == 0.75
    assert score(two, item("a", x=40), right, wrong) == 0.75
    assert score(two, item("a", x=40), right, right) == 1.0
    assert score(three, *[item("a", x=40)] * 2, wrong, right, wrong) == 0.75


def test_by_default_a_wrong_relation_earns_nothing_and_terms_are_clamped():
    assert soft_score(RIGHT, A_LEFT) == 1.0
    assert soft_score(WRONG, A_LEFT) == pytest.approx(2 / 3)
    assert soft_score([item("a")] * 16, {"include": [{"class": "a", "count": 1}]}) == 0.0


def test_graded_terms():
    four = {"include": [{"class": "a", "count": 4, "color": "red"}]}
    assert soft_score([item("a")] * 3, four) == pytest.approx((0.75 + 0) / 2)
    found = [item("a")] * 3 + [item("a", "blue")]
    assert soft_score(found, four) == pytest.approx((1 + 0.75) / 2)
    assert soft_score([item("a")] * 4, four, faults=2) == pytest.approx(2 / 4)
    assert soft_score([], {"include": []}) == 0.0


def test_what_meets_a_scene_scores_one_and_without_any_object_does_not():
    for scene in scenes():
        found, wanted = perfect(scene), requirements(scene)
        assert strict_score(found, wanted) == soft_score(found, wanted) == 1.0
        for i in range(len(found)):
            less = found[:i] + found[i + 1 :]
            assert strict_score(less, wanted) == 0.0
            assert soft_score(less, wanted) < 1.0


def test_scores_of_any_detections_are_in_range_and_strict_implies_soft():
    rng = np.random.default_rng(1)
    names = ("circle", "square", "triangle", "star", "cross", "unknown")
    for scene in scenes():
        wanted = requirements(scene)
        found = [
            item(str(rng.choice(names)), str(rng.choice(["red", "blue"])), *rng.uniform(5, 60, 2))
            for _ in range(rng.integers(0, 9))
        ]
        for credit in ("none", "flow_grpo"):
            soft = soft_score(found, wanted, relation_credit=credit)
            assert 0.0 <= soft <= 1.0
            strict = strict_score(found, wanted)
            assert strict in (0.0, 1.0)
            assert soft == 1.0 or strict == 0.0
        assert soft_score(found, wanted) <= soft_score(found, wanted, relation_credit="flow_grpo")


def test_strict_honours_exclude_and_counts_the_first_ones():
    one = {"include": [{"class": "a", "count": 1, "color": "red"}]}
    found = [item("a"), item("a", "blue")]
    assert strict_score(found, one) == 1.0
    assert strict_score(found[::-1], one) == 0.0
    assert strict_score(found, one | {"exclude": [{"class": "a", "count": 2}]}) == 0.0
    assert strict_score(found, one | {"exclude": [{"class": "b", "count": 1}]}) == 1.0


def test_a_relation_to_a_target_of_the_wrong_color_fails():
    wanted = {
        "include": [
            {"class": "a", "count": 1, "color": "blue"},
            {"class": "b", "count": 1, "position": ["left of", 0]},
        ]
    }
    assert strict_score(RIGHT, wanted) == 0.0
    assert soft_score(RIGHT, wanted) == pytest.approx(2 / 4)


def test_relative_position_by_direction():
    """All around; near a diagonal both relations hold, as in GenEval."""
    for degrees in range(0, 360, 5):
        angle = math.radians(degrees)
        a = item("a", x=200 + 100 * math.cos(angle), y=200 + 100 * math.sin(angle), size=1e-6)
        found = relative_position(a, item("b", x=200, y=200, size=1e-6))
        assert ("right of" in found) == (math.cos(angle) > 0.5 + 1e-6)
        assert ("left of" in found) == (math.cos(angle) < -0.5 - 1e-6)
        assert ("below" in found) == (math.sin(angle) > 0.5 + 1e-6)
        assert ("above" in found) == (math.sin(angle) < -0.5 - 1e-6)


def test_relative_position_allows_for_the_sizes():
    big = 40.0
    assert relative_position(item("a", x=107, size=big), item("b", x=100, size=big)) == set()
    assert relative_position(item("a", x=130, size=big), item("b", x=100, size=big)) == {"right of"}
    assert relative_position(item("a", x=115, size=big), item("b", x=100, size=big)) == set()


def test_relative_position_is_antisymmetric():
    rng = np.random.default_rng(2)
    opposite = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
    for _ in range(100):
        a, b = (item("a", None, *rng.uniform(0, 64, 2), rng.uniform(5, 20)) for _ in range(2))
        assert {opposite[r] for r in relative_position(a, b)} == relative_position(b, a)
