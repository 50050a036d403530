"""Each kind of constraint: texts that fulfil it, and texts that miss it by a little."""

from itertools import combinations
from random import Random

import pytest

from rlfactory.prompts.ops.constraints import APART, KINDS, TEXTS, agree, draw_value, is_fulfilled
from rlfactory.prompts.ops.constraints import stated as state

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
