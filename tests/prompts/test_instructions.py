"""Instructions: what is held out is whole, and prompts are the same in each process."""

from itertools import combinations
from random import Random

import pytest

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.instructions import (
    APART,
    HELD_OUT,
    KINDS,
    TEXTS,
    InstructionsPrompts,
    agree,
    draw_value,
    is_fulfilled,
    stated,
)
from rlfactory.prompts.instructions import stated as state


def kinds(prompts: list[Prompt]) -> set[str]:
    return {c["kind"] for p in prompts for c in p.metadata["constraints"]}


def phrasings(prompts: list[Prompt]) -> set[int]:
    return {
        number
        for p in prompts
        for c in p.metadata["constraints"]
        for number in range(len(TEXTS[c["kind"]]))
        if stated(c["kind"], c["value"], number) in p.text
    }


def test_training_lacks_kinds_and_a_phrasing() -> None:
    prompts = InstructionsPrompts(count=500)
    assert len({p.text for p in prompts.prompts}) == 500
    assert kinds(prompts.prompts) == {*KINDS} - {*HELD_OUT}
    assert phrasings(prompts.prompts) == {0, 1}


def test_evaluations_have_what_training_lacks() -> None:
    seen, unseen, phrased = (InstructionsPrompts(part=p) for p in ("seen", "kinds", "phrasings"))
    assert kinds(unseen.eval_prompts) == {*HELD_OUT}
    assert kinds(seen.eval_prompts) == kinds(phrased.eval_prompts) == kinds(seen.prompts)
    assert phrasings(seen.eval_prompts) == {0, 1}
    assert phrasings(phrased.eval_prompts) == {2}
    assert seen.separate
    assert unseen.separate
    subjects = {s for s in TEXTS["subjects"] if any(s in p.text for p in seen.prompts)}
    assert not any(s in p.text for s in subjects for p in seen.eval_prompts)


def test_the_same_arguments_give_the_same_prompts() -> None:
    first, second = InstructionsPrompts(count=50), InstructionsPrompts(count=50)
    assert [p.text for p in first.prompts] == [p.text for p in second.prompts]
    assert first.prompts[0].metadata == second.prompts[0].metadata


def test_constraints_of_a_prompt() -> None:
    numbers = [
        len(p.metadata["constraints"]) for p in InstructionsPrompts(most=3, count=300).prompts
    ]
    assert {*numbers} == {1, 2, 3}


@pytest.mark.parametrize(
    "options", [{"held_out_kinds": [*KINDS]}, {"held_out_kinds": [], "part": "kinds"}]
)
def test_no_kind_is_left(options: dict[str, object]) -> None:
    with pytest.raises(PromptError, match="held_out_kinds"):
        InstructionsPrompts(**options)


CASES = {
    "words": (3, ["one two three", " a, b - "], ["one two", "one two three four"]),
    "one_word": (None, ["Yes.", " rain\n"], ["Yes, yes", "a b"]),
    "items": (2, ["- a\n- b", "- a b\n\n- c\n"], ["- a", "- a\nb", "-a\n-b", "- a\n- b\n- c"]),
    "json": (
        ["age", "name"],
        ['{"name": "Fox", "age": 3}'],
        ['{"name": 1}', '{"name": 1, "age": 2, "size": 3}', "[1]", 'It is {"name": 1, "age": 2}'],
    ),
    "lower": (None, ["the rain, 7"], ["The rain", "77"]),
    "upper": (None, ["RAIN, 7"], ["RAiN", "77"]),
    "no_comma": (None, ["rain; snow"], ["rain, snow"]),
    "ends_with": ("the end.", ["It rains, the end. "], ["It is the end", "The end. It rains"]),
    "starts_with": ("Once", ["Once, it rained"], ["once it rained", "It was Once"]),
    "twice": ("light", ["Light and light"], ["light", "light light light", "lights and light"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fulfilled_or_missed(kind: str) -> None:
    value, right, wrong = CASES[kind]
    assert all(is_fulfilled(text, kind, value) for text in right)
    assert not any(is_fulfilled(text, kind, value) for text in [*wrong, "", "  \n"])


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_phrasings(kind: str) -> None:
    random = Random(0)
    values = [draw_value(kind, random) for _ in range(20)]
    assert len({str(value) for value in values}) == 1 or None not in values
    sentences = {state(kind, values[0], i) for i in range(len(TEXTS[kind]))}
    assert len(sentences) == len(TEXTS["words"])
    assert not any("{" in sentence for sentence in sentences)


SOLVABLE = {
    frozenset({"lower", "ends_with"}): "it rains. that is all.",
    frozenset({"items", "lower"}): "- a\n- b",
    frozenset({"words", "items"}): "- a\n- b c",
    frozenset({"json", "lower"}): '{"age": "three", "name": "fox"}',
}


def test_kinds_that_stand_together_can_be_fulfilled_together() -> None:
    for kinds, text in SOLVABLE.items():
        assert agree(kinds)
        values = {"ends_with": "that is all.", "items": 2, "words": 5, "json": ["age", "name"]}
        assert all(is_fulfilled(text, kind, values.get(kind)) for kind in kinds)
    assert sum(agree(frozenset(pair)) for pair in combinations(KINDS, 2)) == 45 - len(
        {pair for pair in combinations(KINDS, 2) if any(set(pair) <= apart for apart in APART)}
    )
    assert not agree(frozenset({"lower", "upper", "twice"}))
