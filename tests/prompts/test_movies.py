from collections import Counter

import pytest

from rlfactory.prompts.base import PromptError
from rlfactory.prompts.movies import STARTS, Movies


def texts(prompts):
    return [prompt.text for prompt in prompts]


def test_the_beginnings_that_ship():
    assert STARTS[0] == "This movie was really"
    assert len(set(STARTS)) == len(STARTS) == 24
    assert all(start == start.strip() for start in STARTS)
    assert len({start.split()[0] for start in STARTS}) > 10


def test_an_epoch_deals_out_each_beginning_once():
    drawn = [p for k in range(3) for p in texts(Movies().draw(8, seed=0, iteration=k))]
    assert sorted(drawn) == sorted(STARTS)
    assert drawn != list(STARTS)


def test_draws_are_keyed():
    draws = [texts(Movies().draw(8, seed=s, iteration=i)) for s, i in ((0, 4), (0, 5), (1, 4))]
    assert texts(Movies().draw(8, seed=0, iteration=4)) == draws[0]
    assert len({tuple(draw) for draw in draws}) == 3


def test_more_than_there_are_come_again_evenly():
    count = Counter(texts(Movies(starts=["a", "b", "c"]).draw(7, seed=0, iteration=0)))
    assert sorted(count.values()) == [2, 2, 3]


def test_evaluation_repeats_them_in_order():
    assert texts(Movies().held_out(30)) == [*STARTS, *STARTS[:6]]
    assert texts(Movies(starts=["b", "a", "b"]).held_out(5)) == ["b", "a", "b", "a", "b"]
    assert Movies().held_out(0) == []


@pytest.mark.parametrize(("share", "kept"), [(0.25, 6), (0.01, 1), (0.9, 22)])
def test_a_share_is_for_evaluation_alone(share, kept):
    source = Movies(held_out_share=share)
    trained = {p for k in range(24) for p in texts(source.draw(24, seed=0, iteration=k))}
    assert trained == set(STARTS[:-kept])
    assert texts(source.held_out(kept)) == list(STARTS[-kept:])


def test_a_share_is_not_rounded_up_for_a_floats_sake():
    source = Movies(starts=[str(i) for i in range(100)], held_out_share=0.07)
    assert len(source.eval_prompts) == 7


def test_they_bring_no_metadata():
    assert Movies.metadata == ()
    assert all(prompt.metadata == {} for prompt in Movies().held_out(24))


@pytest.mark.parametrize("starts", [[], [""], ["fine", " \n"]])
def test_beginnings_that_are_none(starts):
    with pytest.raises(PromptError, match=r"prompts\.starts"):
        Movies(starts=starts)


@pytest.mark.parametrize(("starts", "share"), [(None, 1.0), (["one"], 0.2)])
def test_a_share_that_leaves_nothing_to_train_on(starts, share):
    with pytest.raises(PromptError, match=rf"prompts\.held_out_share is {share}, which leaves"):
        Movies(starts=starts, held_out_share=share)
