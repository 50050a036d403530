"""Values against annotations."""

from typing import Any, Literal

import pytest

from rlfactory.utils.types import (
    BelowOne,
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    TargetNode,
    describe,
    matches,
)

NODE = {"_target_": "a.B"}
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2.5,
    0.0,
    "1",
    "a",
    [],
    [1],
    ["a"],
    [1.5],
    {},
    NODE,
]
TABLE: dict[str, tuple[Any, list[Any], str]] = {
    "int": (int, [0, 1, -1], "a whole number"),
    "float": (float, [0, 1, -1, 2.5, 0.0], "a number"),
    "bool": (bool, [True, False], "true or false"),
    "str": (str, ["1", "a"], "text"),
    "optional": (int | None, [None, 0, 1, -1], "a whole number or null"),
    "positive": (PositiveInt, [1], "a whole number >= 1"),
    "natural": (NonNegativeInt, [0, 1], "a whole number >= 0"),
    "rate": (Positive, [1, 2.5], "a number > 0"),
    "weight": (NonNegative, [0, 1, 2.5, 0.0], "a number >= 0"),
    "decay": (BelowOne, [0, 0.0], "a number >= 0 and < 1"),
    "share": (Fraction, [0, 1, 0.0], "a number >= 0 and <= 1"),
    "maybe": (Positive | None, [None, 1, 2.5], "a number > 0 or null"),
    "literal": (Literal["a", 1], [1, "a"], "a | 1"),
    "list": (list[int], [[], [1]], "a list, each a whole number"),
    "floats": (list[float], [[], [1], [1.5]], "a list, each a number"),
    "letters": (list[Literal["a"]], [[], ["a"]], "a list, each a"),
    "dict": (dict, [{}, NODE], "a mapping"),
    "weights": (dict[str, float], [{}], "a mapping of text, each a number"),
    "loose": (dict[str, Any], [{}, NODE], "a mapping"),
    "component": (TargetNode, [NODE], "a mapping with a _target_"),
    "parts": (dict[str, TargetNode], [{}], "a mapping of text, each a mapping with a _target_"),
    "maybe a part": (TargetNode | None, [None, NODE], "a mapping with a _target_ or null"),
    "any": (Any, VALUES, "anything"),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_fits_and_what_does_not(name: str) -> None:
    kind, allowed, words = TABLE[name]
    for value in VALUES:
        expected = any(
            value is one or (value == one and type(value) is type(one)) for one in allowed
        )
        assert matches(value, kind) is expected, value
    assert describe(kind) == words


@pytest.mark.parametrize("kind", [Positive, NonNegative, Fraction])
def test_no_number_is_in_no_range(kind: Any) -> None:
    assert not matches(float("nan"), kind)


def test_names_and_values_of_a_mapping_are_checked() -> None:
    weights = dict[str, float]
    assert matches({"a": 1, "b": 0.5}, weights)
    assert not matches({"a": 1, "b": "x"}, weights)
    assert not matches({1: 0.5}, weights)
    assert matches({"a": "x", 1: None}, dict)
