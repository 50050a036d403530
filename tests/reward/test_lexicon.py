import sys

import pytest

from rlfactory.reward.base import RewardError, check_scores
from rlfactory.reward.lexicon import Lexicon

GOLDEN = {  # README of vaderSentiment 3.3.2
    "VADER is smart, handsome, and funny.": 0.8316,
    "VADER is VERY SMART, handsome, and FUNNY!!!": 0.9342,
    "VADER is not smart, handsome, nor funny.": -0.7424,
    "The book was good.": 0.4404,
    "The plot was good, but the characters are uncompelling and the dialog is not great.": -0.7042,
    "Today SUX!": -0.5461,
}


def score(samples):
    pytest.importorskip("vaderSentiment")
    reward = Lexicon()
    scores = reward.score(samples)
    check_scores(reward, scores, len(samples.texts))
    return scores["lexicon"].tolist()


def test_golden(samples_of):
    assert score(samples_of([*GOLDEN])) == pytest.approx([*GOLDEN.values()], abs=1e-6)


def test_praise_and_blame_and_neither(samples_of):
    praise, blame, table, nothing = score(samples_of(["great " * 200, "awful " * 200, "table", ""]))
    assert 0.99 < praise <= 1
    assert -1 <= blame < -0.99
    assert table == nothing == 0


def test_the_prompt_does_not_count(samples_of):
    assert score(samples_of([" table"], ["A wonderful"])) == [0]


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)
    with pytest.raises(RewardError, match=r"pip install 'rlfactory\[text\]'"):
        Lexicon()
