"""How an iteration's samples are divided among updates."""

import pytest
import torch

from rlfactory.train.components import Shares
from rlfactory.train.minibatches import longest_first, split_minibatches

GROUPS = torch.arange(12).repeat_interleave(6)


@pytest.mark.parametrize("kind", ["random", "even", "groups"])
@pytest.mark.parametrize("updates", [1, 2, 3, 5])
def test_each_sample_is_in_one_share_and_shares_are_alike_in_size(
    kind: Shares, updates: int
) -> None:
    found = split_minibatches(kind, GROUPS, updates, seed=0, key=[3])
    assert len(found) == updates
    assert torch.cat(list(found)).sort().values.tolist() == list(range(72))
    sizes = [len(share) for share in found]
    assert max(sizes) - min(sizes) <= (6 if kind == "groups" else 1)


@pytest.mark.parametrize("updates", [2, 3, 4])
def test_an_even_share_has_equally_many_of_each_group(updates: int) -> None:
    for share in split_minibatches("even", GROUPS, updates, seed=0, key=[0]):
        counts = GROUPS[share].bincount(minlength=12)
        assert counts.max() - counts.min() <= (0 if 6 % updates == 0 else 1)
        assert GROUPS[share].diff().ne(0).any(), "groups are mixed"
        assert not torch.equal(GROUPS[share], GROUPS[share].sort().values)


@pytest.mark.parametrize("updates", [1, 2, 3, 4, 5])
def test_a_share_of_groups_has_whole_groups_and_every_rank_as_many(updates: int) -> None:
    groups = torch.arange(24).repeat_interleave(3) + 5  # any numbers
    groups = groups[groups != 9]  # a group whose rewards failed
    for share in split_minibatches("groups", groups, updates, seed=0, key=[0]):
        counts = groups[share].bincount(minlength=29)
        assert {*counts.tolist()} <= {0, 3}
        # three ranks of eight neighbouring groups each
        each = (counts[5:] > 0).view(3, 8).sum(1)
        assert each.max() - each.min() <= 2
        assert updates == 1 or not torch.equal(share, share.sort().values), "shuffled"


def test_updates_of_whole_groups_are_drawn_anew() -> None:
    def first(iteration: int) -> list[int]:
        share = split_minibatches("groups", GROUPS, 3, seed=0, key=[iteration])[0]
        return GROUPS[share].unique().tolist()

    assert len({tuple(first(i)) for i in range(5)}) > 1
    assert all(len(first(i)) == 4 for i in range(5))


@pytest.mark.parametrize("kind", ["random", "even", "groups"])
def test_chance_is_keyed(kind: Shares) -> None:
    def drawn(seed: int, *key: int) -> list[int]:
        return torch.cat(list(split_minibatches(kind, GROUPS, 2, seed=seed, key=key))).tolist()

    assert drawn(0, 1) == drawn(0, 1)
    assert drawn(0, 1) != drawn(0, 2)
    assert drawn(0, 1) != drawn(1, 1)


def test_which_of_a_group_go_together_is_chance() -> None:
    first = [
        set(split_minibatches("even", GROUPS, 2, seed=0, key=[i])[0].tolist()) for i in range(4)
    ]
    assert len(set(map(frozenset, first))) == 4


def test_texts_of_like_length_are_neighbours() -> None:
    lengths = torch.tensor([3, 9, 4, 9, 1, 5])
    rows = torch.tensor([4, 3, 0, 1, 5])
    assert longest_first(rows, lengths).tolist() == [3, 1, 5, 0, 4]
    assert longest_first(rows, torch.ones(6)).tolist() == rows.tolist()


@pytest.mark.parametrize("kind", ["random", "even", "groups"])
def test_without_samples_every_update_is_empty(kind: Shares) -> None:
    found = split_minibatches(kind, GROUPS[:0], 3, seed=0, key=[0])
    assert [len(share) for share in found] == [0, 0, 0]
