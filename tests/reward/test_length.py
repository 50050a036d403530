"""The reward `length`."""

import pytest
import torch

from rlfactory.reward.base import Samples
from rlfactory.reward.length import Length


def samples(texts: list[str]) -> Samples:
    return Samples([""] * len(texts), [{}] * len(texts), torch.arange(len(texts)), texts=texts)


@pytest.mark.parametrize(
    ("text", "score"), [("", 0.0), ("a b", 0.5), ("a b c d", 1.0), ("a b c d e f g h", 0.0)]
)
def test_it_peaks_at_the_target(text: str, score: float) -> None:
    assert Length(target=4).score(samples([text]))["length"].item() == pytest.approx(score)


def test_units_and_bounds() -> None:
    found = Length(target=4, unit="characters").score(samples(["abcd", "ab", "x" * 99]))["length"]
    assert found.tolist() == [1.0, 0.5, 0.0]
