"""Openings of reviews."""

import pytest

from rlfactory.prompts.base import PromptError
from rlfactory.prompts.movies import OPENINGS, Movies


def texts(count: int, **key: int) -> list[str]:
    return [prompt.text for prompt in Movies().draw(count, seed=0, **key)]


def test_draws_are_distinct_keyed_and_even() -> None:
    one = texts(8, iteration=0)
    assert len(set(one)) == 8
    assert one == texts(8, iteration=0)
    assert one != texts(8, iteration=1)
    many = texts(2 * len(OPENINGS), iteration=0)
    assert all(many.count(opening) == 2 for opening in OPENINGS)


def test_the_walkthroughs_own_comes_first() -> None:
    held = [prompt.text for prompt in Movies().held_out(len(OPENINGS) + 1)]
    assert held[0] == held[-1] == "This movie was really"
    assert len(set(OPENINGS)) == len(OPENINGS)


def test_ones_own_openings() -> None:
    assert {p.text for p in Movies(openings=["x", "y"]).draw(2, seed=0, iteration=0)} == {"x", "y"}
    with pytest.raises(PromptError, match="openings"):
        Movies(openings=[])
