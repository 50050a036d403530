"""The prompts by ability: distinct, short enough for CLIP, in turns of categories."""

from collections import Counter

import pytest

from rlfactory.prompts.abilities import CATEGORIES, TEXTS, Abilities
from rlfactory.prompts.base import PromptError
from rlfactory.reward.ocr import quoted_word


def test_each_category_has_six_distinct_prompts() -> None:
    prompts = Abilities().held_out(1000)
    assert len({p.text for p in prompts}) == len(prompts) == 66
    assert Counter(p.metadata["tag"] for p in prompts) == dict.fromkeys(CATEGORIES, 6)
    assert {*TEXTS} == {*CATEGORIES}
    assert max(len(p.text.split()) for p in prompts) < 35, "CLIP reads 77 tokens"


def test_a_smaller_evaluation_has_some_of_each_category() -> None:
    source = Abilities()
    assert [p.metadata["tag"] for p in source.held_out(12)] == [*CATEGORIES, CATEGORIES[0]]
    assert source.held_out(12) == source.held_out(66)[:12]


def test_prompts_of_text_quote_it() -> None:
    assert all(quoted_word(text) for text in TEXTS["text"])


def test_categories_of_ones_own() -> None:
    source = Abilities(categories=["text", "colors", "text"])
    assert [p.metadata["tag"] for p in source.held_out(3)] == ["text", "colors", "text"]
    assert len(source.prompts) == 12
    with pytest.raises(PromptError, match=r"prompts\.categories is empty"):
        Abilities(categories=[])


def test_draws_are_keyed_and_nothing_is_held_out() -> None:
    source = Abilities()
    assert source.separate is False
    assert source.draw(8, seed=0, iteration=4) == Abilities().draw(8, seed=0, iteration=4)
    assert source.draw(8, seed=0, iteration=4) != source.draw(8, seed=0, iteration=5)
