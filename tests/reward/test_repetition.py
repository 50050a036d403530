"""The reward `repetition`."""

import pytest
import torch

from rlfactory.reward.base import Samples
from rlfactory.reward.repetition import Repetition


def samples(texts: list[str]) -> Samples:
    return Samples([""] * len(texts), [{}] * len(texts), torch.arange(len(texts)), texts=texts)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("a b c d e", 0.0),
        ("a b c A b c", -0.25),  # four trigrams, one of them again
        ("so so so so so", -2 / 3),
        ("a b", 0.0),
        ("", 0.0),
    ],
)
def test_it_counts_what_came_before(text: str, score: float) -> None:
    found = Repetition(ngram=3).score(samples([text]))["repetition"]
    assert found.item() == pytest.approx(score)


def test_longer_phrases_repeat_less() -> None:
    text = "a b a b a b c"
    one, three = (Repetition(ngram=n).score(samples([text]))["repetition"].item() for n in (1, 3))
    assert one < three < 0
