"""A reward made of rewards: what counts, what is reported, and what fails."""

import math

import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, RewardError, Samples, check_scores
from rlfactory.reward.combine import Combine

NAN = float("nan")


class Fixed(Reward):
    """Always the same scores."""

    media = "images"

    def __init__(self, values, *, main="fixed", media="images", needs=(), good=None, **others):
        self.main, self.media, self.metadata, self.best_score = main, media, needs, good
        self.values = {main: values, **others}

    def score(self, samples):
        return {name: torch.tensor(values) for name, values in self.values.items()}


def samples(count=4):
    groups = torch.arange(count) // 2
    return Samples(["p"] * count, [{}] * count, groups, torch.zeros(count, 3, 2, 2).byte())


def combined(parts=None, **options):
    parts = parts or {"a": Fixed([1.0, 2.0, 3.0, 5.0]), "b": Fixed([0.0, 1.0, 1.0, 0.0])}
    return Combine(of=[*parts], parts=parts, **options)


def scores_of(made, count=4):
    found = made.score(samples(count))
    check_scores(made, found, count)
    return {name: values.tolist() for name, values in found.items()}


def trained(made, scores=None):
    found = scores or made.score(samples())
    return made.normalise(found, samples().groups)["combined"]


def test_the_sum_is_weighed_and_all_parts_are_reported_by_name():
    found = scores_of(combined(weights={"b": 0.5}))
    assert [*found] == ["combined", "a", "b"]
    assert found["combined"] == [1.0, 2.5, 3.5, 5.0]
    assert found["a"] == [1.0, 2.0, 3.0, 5.0]


def test_parts_without_a_score_are_left_out_of_the_sum_on_request():
    parts = {"a": Fixed([1.0, NAN, NAN, 5.0]), "b": Fixed([NAN, 2.0, NAN, 1.0])}
    made = combined(parts, missing="skip", weights={"b": 0.5})
    assert scores_of(made)["combined"] == pytest.approx([1.0, 1.0, NAN, 5.5], nan_ok=True)
    grouped = combined(parts, missing="skip", normalise={"a": "none", "b": "group"})
    assert trained(grouped).tolist() == pytest.approx([1.0, 0.0, NAN, 5.0], nan_ok=True)


def test_a_part_without_a_score_is_named_with_what_sums_the_others(caplog):
    parts = {"a": Fixed([1.0, NAN, 2.0, NAN]), "b": Fixed([1.0] * 4)}
    assert scores_of(combined(parts))["combined"] == pytest.approx([2, NAN, 3, NAN], nan_ok=True)
    (told,) = caplog.messages
    assert told == "a has no score of 2 of 4 samples; reward.missing=skip sums the others"


def test_gdpo_leaves_no_part_out():
    with pytest.raises(RewardError, match=r"reward.missing: skips parts of a sum, and gdpo"):
        combined(missing="skip", aggregate="gdpo")


def test_other_scores_keep_their_names_where_they_can():
    parts = {
        "small": Fixed([1.0] * 4, main="size", kb=[2.0] * 4, large=[0.0] * 4),
        "large": Fixed([3.0] * 4, main="size", kb=[4.0] * 4, combined=[9.0] * 4),
    }
    found = scores_of(combined(parts))
    assert found["combined"] == [4.0] * 4
    assert (found["small"][0], found["large"][0]) == (1.0, 3.0)
    assert (found["kb"][0], found["large_kb"][0], found["small_large"][0]) == (2.0, 4.0, 0.0)
    assert "size" not in found


def test_a_part_that_counts_and_has_no_score_makes_the_sum_have_none():
    parts = {"a": Fixed([1.0, NAN, 1.0, 1.0]), "b": Fixed([1.0, 1.0, NAN, 1.0])}
    summed = scores_of(combined(parts))["combined"]
    assert [math.isnan(value) for value in summed] == [False, True, True, False]
    watched = combined(parts, weights={"b": 0})
    assert [math.isnan(v) for v in scores_of(watched)["combined"]] == [False, True, False, False]
    known = trained(combined(parts, normalise="group")).isfinite()
    assert known.tolist() == [True, False, False, True]


def test_clips_then_gates_then_weights():
    parts = {
        "a": Fixed([-1.0, 0.5, 4.0, 4.0]),
        "gate": Fixed([0.9, 0.4, 0.5, NAN]),
    }
    made = combined(
        parts,
        clips={"a": [0.1, 2.0]},
        gates={"a": {"gate": 0.5}},
        weights={"a": 10, "gate": 0},
    )
    found = scores_of(made)
    assert found["a_counted"][:3] == pytest.approx([0.1, 0.0, 2.0])
    assert found["combined"][:3] == pytest.approx([1.0, 0.0, 20.0])
    assert math.isnan(found["combined"][3]), "whether it counts is not known"
    assert found["a"] == [-1.0, 0.5, 4.0, 4.0]
    assert "gate_counted" not in found


@pytest.mark.parametrize(("bounds", "value"), [([None, 2.0], -1.0), ([0.0, None], 4.0)])
def test_a_clip_may_be_open(bounds, value):
    parts = {"a": Fixed([-1.0, 1.0, 1.0, 4.0])}
    assert value in scores_of(combined(parts, clips={"a": bounds}))["combined"]


def test_group_normalisation_is_of_each_part_alone_and_trains():
    made = combined(normalise="group", weights={"a": 2.0, "b": 1.0})
    plain = scores_of(made)["combined"]
    assert plain == [2.0, 5.0, 7.0, 10.0], "what is reported is the plain sum"
    # groups [1, 2], [3, 5] and [0, 1], [1, 0]: each pair becomes -1, 1
    torch.testing.assert_close(trained(made), torch.tensor([-3.0, 3.0, -1.0, 1.0]))
    one = combined(normalise={"b": "group"})
    torch.testing.assert_close(trained(one), torch.tensor([0.0, 3.0, 4.0, 4.0]))
    same = {"a": Fixed([2.0] * 4)}
    assert trained(combined(same, normalise="group")).tolist() == [0.0] * 4


def test_gdpo_hands_the_scores_out():
    parts = {"a": Fixed([1.0] * 4), "b": Fixed([2.0] * 4), "c": Fixed([3.0] * 4)}
    made = combined(parts, aggregate="gdpo", weights={"b": 0.5, "c": 0}, clips={"b": [0.0, 1.0]})
    assert made.score_weights == {"a": 1.0, "b_counted": 0.5}
    found = made.score(samples())
    assert made.normalise(found, samples().groups) is found
    assert made.score_weights.keys() <= found.keys()
    assert combined().score_weights is None


def test_what_it_needs_is_what_its_parts_need():
    parts = {
        "a": Fixed([1.0], needs=("x", "y"), good=1.0),
        "b": Fixed([1.0], needs=("y", "z"), good=2.0),
    }
    made = combined(parts, weights={"b": 3})
    assert (made.media, made.metadata, made.best_score) == ("images", ("x", "y", "z"), 7.0)
    assert combined(parts | {"c": Fixed([1.0])}).best_score is None
    assert combined(parts | {"c": Fixed([1.0])}, weights={"c": 0}).best_score == 3.0
    assert combined(parts, missing="skip").best_score is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": {"c": 1}}, r"reward\.weights\.c: reward\.of names no c; it names a, b"),
        ({"gates": {"a": {"c": 1}}}, r"reward\.gates\.a\.c: reward\.of names no c"),
        ({"clips": {"c": [0, 1]}}, r"reward\.clips\.c: reward\.of names no c"),
        ({"normalise": {"c": "group"}}, r"reward\.normalise\.c: reward\.of names no c"),
        ({"parts": {"a": Fixed([]), "b": Fixed([], media="texts")}}, "b scores texts"),
    ],
)
def test_errors_at_construction(options, said):
    with pytest.raises(RewardError, match=said):
        combined(**options)


@pytest.mark.parametrize("values", [[1.0, 2.0], [[1.0, 2.0]] * 4, [math.inf, 0.0, 0.0, 0.0]])
def test_a_part_that_returns_something_else_is_named(values):
    with pytest.raises(RewardError, match="Fixed"):
        combined({"a": Fixed(values)}).score(samples())


def test_prompts_must_bring_what_each_part_requires():
    made = combined({"a": Fixed([1.0] * 4), "b": Fixed([1.0] * 4, needs=("tag",))})
    made.check_prompts([Prompt("a star", {"tag": "one"})])
    with pytest.raises(RewardError, match="'two stars': its metadata lacks tag"):
        made.check_prompts([Prompt("a star", {"tag": "one"}), Prompt("two stars", {})])
