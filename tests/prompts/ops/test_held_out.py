"""Which prompts of a list are held out."""

import pytest

from rlfactory.prompts.ops.held_out import held_out_count, held_out_texts


@pytest.mark.parametrize(
    ("distinct", "share", "count"),
    [(100, 0.07, 7), (100, 0.1, 10), (31, 0.1, 4), (30, 0.1, 0), (8, 0.5, 4), (9, 0.0, 0)],
)
def test_a_share_of_the_different_texts_unless_it_is_too_few(
    distinct: int, share: float, count: int
) -> None:
    assert held_out_count(distinct, share) == count
    texts = [f"prompt {i}" for i in range(distinct)]
    assert len(held_out_texts([*texts, *texts], share)) == count


def test_most_stay_held_out_when_the_list_grows() -> None:
    texts = [f"prompt {i}" for i in range(220)]
    before, after = held_out_texts(texts[:200], 0.1), held_out_texts(texts, 0.1)
    assert len(before & after) >= 18
    assert held_out_texts(reversed(texts), 0.1) == after, "the order does not matter"
