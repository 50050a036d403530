import math

import pandas as pd
import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.exact import Exact

HANGS = "(a|aa)+$"


def score(reward, *pairs):
    texts = [text for text, _ in pairs]
    metadata = [{"answer": answer} for _, answer in pairs]
    samples = Samples(["2+2="] * len(pairs), metadata, torch.arange(len(pairs)), texts=texts)
    scores = reward.score(samples)
    check_scores(reward, scores, len(pairs))
    return scores["exact"].tolist()


def test_white_space_and_compatible_characters_do_not_count():
    pairs = [
        ("85", "85"),
        (" 85\n", 85),
        ("8 5", "85"),
        ("\uff18\uff15", "85"),
        ("a  b", "a\nb"),
        ("", "85"),
    ]
    assert score(Exact(), *pairs) == [1, 1, 0, 1, 1, 0]


def test_case_and_punctuation_count_unless_told():
    pair = ("Paris.", "paris")
    assert score(Exact(), pair) == [0]
    assert score(Exact(ignore_case=True), pair) == [0]
    assert score(Exact(ignore_case=True, ignore_punctuation=True), pair) == [1]


def test_any_of_several_answers_is_right():
    assert score(Exact(), ("4", ["four", 4]), ("four", ["four", 4]), ("5", ["four", 4])) == [
        1,
        1,
        0,
    ]


def test_the_last_match_is_compared():
    reward = Exact(extract=r"#### *(\S+)")
    assert score(reward, ("#### 3 no #### 4", 4), ("4", 4), ("#### 4 #### 5", 4)) == [1, 0, 0]
    assert score(Exact(extract=r"-?\d+"), ("it is -4, not 4: -4", -4)) == [1]


def test_a_search_that_hangs_and_a_missing_answer_have_no_score():
    reward = Exact(extract=HANGS, timeout=0.05)
    hung, rest = score(reward, ("a" * 60 + "b", "a"), ("a", "a"))
    assert math.isnan(hung)
    assert rest == 1
    assert math.isnan(score(Exact(), ("85", None))[0])


@pytest.mark.parametrize("answer", [None, "", " ", [], ["4", ""], {"a": 1}, pd.NA, math.nan])
def test_answers_that_can_not_be_compared_are_refused(answer):
    with pytest.raises(RewardError, match=r"2\+2.*answer"):
        Exact().check_prompts([Prompt("2+2", {"answer": answer})])


def test_a_prompt_without_the_column_is_refused():
    with pytest.raises(RewardError, match="lacks solution"):
        Exact(answer_column="solution").check_prompts([Prompt("2+2", {"answer": "4"})])
    Exact().check_prompts(Prompt("2+2", {"answer": a}) for a in ("4", 4, ["4"], 0))


def test_an_invalid_pattern_is_refused():
    with pytest.raises(RewardError, match=r"reward\.extract=\( is no regular expression"):
        Exact(extract="(")
