import pytest

from rlfactory.prompts.base import PromptError
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.prompts.signs import PLACES, WORDS, Signs
from rlfactory.reward.ocr import quoted_word


def test_every_prompt_quotes_its_word():
    source = Signs()
    texts = [p.text for p in [*source.prompts, *source.eval_prompts]]
    assert len(set(texts)) == len(texts) == len(WORDS) * len(PLACES)
    assert {quoted_word(text) for text in texts} == set(WORDS)


def test_a_quarter_is_held_out():
    source = Signs()
    drawn = {p.text for k in range(40) for p in source.draw(48, seed=0, iteration=k)}
    assert not any(is_held_out(text) for text in drawn)
    assert all(is_held_out(p.text) for p in source.held_out(1000))
    assert 0.2 < len(source.eval_prompts) / (len(WORDS) * len(PLACES)) < 0.3
    assert len(source.held_out(256)) == 256


def test_draws_are_keyed():
    draws = [Signs().draw(8, seed=s, iteration=i) for s, i in ((0, 4), (0, 5), (1, 4), (0, 4))]
    assert draws[0] == draws[3]
    assert draws[0] != draws[1]
    assert draws[0] != draws[2]


@pytest.mark.parametrize("words", [[], [" "], ['say "hi"'], ["a"] * 3 + [""]])
def test_words_that_are_none(words):
    with pytest.raises(PromptError, match=r"prompts\.words"):
        Signs(words=words)


def test_words_of_ones_own():
    assert all('"Mango"' in p.text for p in Signs(words=["Mango"]).draw(4, seed=0, iteration=0))


def test_places_of_ones_own_and_short_words() -> None:
    source = Signs(places=['"{}"'], longest=6)
    texts = [p.text for p in [*source.prompts, *source.eval_prompts]]
    assert sorted(texts) == sorted(f'"{word}"' for word in WORDS if len(word) <= 6)
    for options in ({"places": []}, {"places": ["a sign: {}"]}, {"longest": 2}):
        with pytest.raises(PromptError, match=rf"prompts\.{[*options][0]}"):
            Signs(**options)
