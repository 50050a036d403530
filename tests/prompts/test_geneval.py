from collections import Counter

import numpy as np
import pytest

from rlfactory.prompts.geneval import FLOW_GRPO, GenEvalPrompts, prompt
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.prompts.ops.prompt_features import OBJECTS, metadata_problem
from rlfactory.prompts.ops.scenes import CATEGORIES


@pytest.fixture(scope="module")
def drawn():
    source = GenEvalPrompts()
    return [p for k in range(40) for p in source.draw(48, seed=0, iteration=k)]


def test_all_can_be_judged(drawn):
    assert not [
        p
        for p in [*drawn, *GenEvalPrompts().held_out(120)]
        if metadata_problem(p.metadata, OBJECTS)
    ]


def test_the_mixture_is_flow_grpos(drawn):
    tags = Counter(p.metadata["tag"] for p in drawn)
    assert "single_object" not in tags
    for category, share in FLOW_GRPO.items():
        assert tags[category] / len(drawn) == pytest.approx(share / 17, abs=0.035)


def test_training_draws_nothing_held_out_and_nothing_twice_in_an_iteration(drawn):
    assert not any(is_held_out(p.text) for p in drawn)
    for start in range(0, len(drawn), 48):
        assert len({p.text for p in drawn[start : start + 48]}) == 48


def test_evaluation_takes_all_categories_in_turns():
    held_out = GenEvalPrompts().held_out(240)
    assert all(is_held_out(p.text) for p in held_out)
    assert Counter(p.metadata["tag"] for p in held_out) == dict.fromkeys(CATEGORIES, 40)
    assert GenEvalPrompts().held_out(12) == held_out[:12]


def test_a_category_that_runs_out_repeats():
    source = GenEvalPrompts(shares={"single_object": 1})
    texts = [p.text for p in source.draw(80, seed=0, iteration=0)]
    assert 50 < len(set(texts)) < 80


def test_draws_are_keyed():
    draws = [
        GenEvalPrompts().draw(8, seed=s, iteration=i) for s, i in ((0, 4), (0, 5), (1, 4), (0, 4))
    ]
    assert draws[0] == draws[3]
    assert draws[0] not in draws[1:3]


@pytest.mark.parametrize("category", CATEGORIES)
def test_words_and_metadata_agree(category):
    for seed in range(40):
        made = prompt(category, np.random.default_rng(seed))
        clauses = made.metadata["include"]
        assert made.text.startswith("a photo of ")
        assert all(clause["class"] in made.text for clause in clauses)
        assert all(clause.get("color", "") in made.text for clause in clauses)
        assert all(
            clause["position"][0] in made.text for clause in clauses[1:] if "position" in clause
        )
        assert made.metadata["tag"] == category


def test_a_relation_names_what_stands_where():
    made = prompt("position", np.random.default_rng(0))
    other, placed = made.metadata["include"]
    relation, target = placed["position"]
    assert target == 0
    first, second = made.text.removeprefix("a photo of ").split(f" {relation} ")
    assert first.endswith(placed["class"])
    assert second.endswith(other["class"])


def test_counting_excludes_one_more_and_knows_its_plurals():
    made = [prompt("counting", np.random.default_rng(seed)) for seed in range(300)]
    for p in made:
        (wanted,), (surplus,) = p.metadata["include"], p.metadata["exclude"]
        assert surplus["count"] == wanted["count"] + 1
        assert 2 <= wanted["count"] <= 4
    assert any(p.text.endswith("buses") for p in made)


def test_no_person_has_a_colour():
    made = [prompt("color_attr", np.random.default_rng(seed)) for seed in range(300)]
    assert not any(c["class"] == "person" for p in made for c in p.metadata["include"])
    assert all(len({c["color"] for c in p.metadata["include"]}) == 2 for p in made)


@pytest.mark.parametrize("shares", [{}, {"position": 0}])
def test_shares_of_nothing(shares):
    with pytest.raises(ValueError, match=r"prompts\.shares"):
        GenEvalPrompts(shares=shares)
