"""The reward `lexicon`."""

import sys

import pytest
import torch

from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.lexicon import Lexicon


def samples(texts: list[str]) -> Samples:
    return Samples([""] * len(texts), [{}] * len(texts), torch.arange(len(texts)), texts=texts)


def test_it_tells_good_from_bad_and_turns_with_its_sign() -> None:
    texts = ["A wonderful, great film!", "A terrible, awful film.", "A film."]
    good, bad, plain = Lexicon().score(samples(texts))["lexicon"].tolist()
    assert good > 0.5 > plain > -0.5 > bad
    assert Lexicon(sign=-1).score(samples(texts))["lexicon"].tolist() == [-good, -bad, -plain]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)
    with pytest.raises(RewardError, match="pip install"):
        Lexicon()
