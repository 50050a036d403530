from collections import Counter

import pytest

from rlfactory.prompts.base import item_indices, spread_indices

SIZES = [(1, 1), (5, 1), (7, 3), (10, 5), (100, 8), (8, 8)]


@pytest.mark.parametrize(("length", "count"), SIZES)
def test_an_iteration_has_distinct_items_and_an_epoch_repeats_none(length, count):
    batches = length // count
    for epoch in range(3):
        taken = [
            index
            for iteration in range(epoch * batches, (epoch + 1) * batches)
            for index in item_indices(length, count, seed=1, iteration=iteration)
        ]
        assert len(taken) == batches * count == len(set(taken))
        assert set(taken) <= set(range(length))


def test_every_item_gets_its_turn():
    taken = Counter(i for k in range(3000) for i in item_indices(10, 3, seed=0, iteration=k))
    assert set(taken) == set(range(10))
    assert max(taken.values()) < 1.15 * min(taken.values())


@pytest.mark.parametrize(("length", "count"), [(3, 8), (1, 4), (4, 8)])
def test_repeats_only_as_often_as_needed(length, count):
    taken = Counter(item_indices(length, count, seed=0, iteration=5))
    assert sum(taken.values()) == count
    assert set(taken.values()) <= {count // length, count // length + 1}


def test_it_is_pure_and_keyed_by_seed_and_iteration():
    def draw(seed, iteration):
        return item_indices(1000, 8, seed=seed, iteration=iteration)

    assert draw(0, 7) == draw(0, 7)
    assert len({tuple(draw(s, i)) for s in range(3) for i in range(300)}) == 900


def test_golden():
    """`numpy.random.default_rng([0, 0]).permutation(10)[:5]`, numpy 2.4."""
    assert item_indices(10, 5, seed=0, iteration=0) == [4, 6, 2, 7, 3]


def test_edges():
    assert item_indices(3, 0, seed=0, iteration=0) == []
    with pytest.raises(ValueError, match="of 0 items"):
        item_indices(0, 1, seed=0, iteration=0)


def test_spread():
    assert spread_indices(10, 5) == [0, 2, 4, 6, 8]
    assert spread_indices(3, 8) == [0, 1, 2]
    assert len(set(spread_indices(1000, 7))) == 7
