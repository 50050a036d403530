from collections import Counter

import pytest

from rlfactory.prompts.animals import NAMES, Animals
from rlfactory.prompts.base import PromptError

SIMPLE = NAMES["simple"]


def texts(prompts):
    return [prompt.text for prompt in prompts]


def test_ddpos_animals():
    assert len(SIMPLE) == len(set(SIMPLE)) == 45
    assert (SIMPLE[0], SIMPLE[-1]) == ("cat", "kangaroo")


def test_imagenets_animals():
    names = texts(Animals(of="imagenet").prompts)
    assert len(names) == len(set(names)) == 398
    assert (names[0], names[-1]) == ("tench", "puffer")
    assert all(name == name.strip() for name in names)


def test_an_epoch_deals_out_each_once():
    drawn = [p for k in range(5) for p in texts(Animals().draw(9, seed=0, iteration=k))]
    assert sorted(drawn) == sorted(SIMPLE)
    assert drawn != list(SIMPLE)


def test_more_than_there_are_come_again_evenly():
    count = Counter(texts(Animals().draw(100, seed=0, iteration=0)))
    assert len(count) == 45
    assert set(count.values()) == {2, 3}


def test_what_they_do():
    prompts = texts(Animals(doing=["riding a bike", "playing chess"]).prompts)
    assert len(prompts) == 90
    assert prompts[:2] == ["a cat riding a bike", "a cat playing chess"]
    assert "an ant riding a bike" in prompts


def test_evaluation_spreads_or_repeats():
    assert texts(Animals(of="imagenet").held_out(2)) == ["tench", "Scotch terrier"]
    assert texts(Animals().held_out(46)) == [*SIMPLE, "cat"]
    assert Animals().held_out(0) == []


@pytest.mark.parametrize("doing", [[], [" "]])
def test_nothing_to_do(doing):
    with pytest.raises(PromptError, match=r"prompts\.doing"):
        Animals(doing=doing)
