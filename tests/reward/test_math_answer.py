import importlib.util
import logging
import math

import pandas as pd
import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.math_answer import MathAnswer


@pytest.fixture(scope="module")
def reward():
    return MathAnswer(timeout=20.0)


def score(reward, *pairs):
    texts = [text for text, _ in pairs]
    metadata = [{"answer": answer} for _, answer in pairs]
    samples = Samples(["x="] * len(pairs), metadata, torch.arange(len(pairs)), texts=texts)
    scores = reward.score(samples)
    check_scores(reward, scores, len(pairs))
    return scores["math"].tolist()


@pytest.mark.slow
def test_equal_values_are_right_however_they_are_written(reward):
    right = [
        ("85", 85),
        ("It is 0.5.", r"\frac{1}{2}"),
        (r"so \boxed{\frac12}", "1/2"),
        (r"in all \boxed{\$32,348}", r"\$32,\!348"),  # as MATH writes money
        ("$(x+1)^2$", "x^2+2x+1"),
        ("1000", "1,000"),
        ("first 83, then 85", "$85$"),
    ]
    assert score(reward, *right) == [1] * len(right)
    wrong = [("83", 85), ("", 85), ("no idea", 85), ("$9^{", 85), ("85, or rather 83", 85)]
    assert score(reward, *wrong) == [0] * len(wrong)


def test_small_and_large_numbers_are_read_in_full(reward):
    assert score(reward, ("$10^{-5}$", 0.00001), ("1" + "0" * 16, 1e16)) == [1, 1]


@pytest.mark.slow
def test_a_comparison_that_hangs_has_no_score_and_the_next_has_one(caplog):
    reward = MathAnswer(timeout=20.0)
    score(reward, ("1", 1))
    reward.timeout = 0.3
    with caplog.at_level(logging.ERROR):
        (hung,) = score(reward, ("$9^{9^{9^{9}}}$", 85))
    reward.timeout = 20.0
    assert math.isnan(hung)
    assert "0.3 s" in caplog.text
    assert score(reward, ("85", 85)) == [1]


def test_a_missing_or_unreadable_answer_has_no_score(reward):
    assert all(map(math.isnan, score(reward, ("85", None), ("85", " "))))


@pytest.mark.parametrize("answer", [None, "", [85], "$$", pd.NA, math.nan])
def test_unreadable_answers_are_refused(reward, answer):
    with pytest.raises(RewardError, match="'x='.*answer"):
        reward.check_prompts([Prompt("x=", {"answer": answer})])


def test_readable_answers_are_accepted(reward):
    reward.check_prompts(Prompt("x=", {"answer": a}) for a in (85, "85", r"\sqrt{2}", "$x$"))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RewardError, match=r"pip install 'rlfactory\[math\]'"):
        MathAnswer()
