import logging
import time
from itertools import pairwise
from threading import Thread

import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.regex_format import RegexFormat

HANGS = "(a|aa)+$"  # on "aaa...b" the time doubles with each a or two


def score(reward, *texts):
    samples = Samples(["0 "] * len(texts), [{}] * len(texts), torch.arange(len(texts)), texts=texts)
    scores = reward.score(samples)
    check_scores(reward, scores, len(texts))
    return scores["regex"].tolist()


def test_the_whole_completion_matches_or_a_part_of_it():
    texts = ["7", "12 ", "a 12 b", "12 b", "", "x"]
    assert score(RegexFormat(pattern=r"\d+ ?"), *texts) == [1, 1, 0, 0, 0, 0]
    assert score(RegexFormat(pattern=r"\d+", match="search"), *texts) == [1, 1, 1, 1, 0, 0]


def test_flags_stand_in_the_pattern():
    text = "<think>\na\n</think>B"
    assert score(RegexFormat(pattern="<think>.*</think>b"), text) == [0]
    assert score(RegexFormat(pattern="(?si)<think>.*</think>b"), text) == [1]


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_counts_rise_to_the_limit(limit):
    reward = RegexFormat(pattern="ab|-*", match="count", limit=limit)
    found = score(reward, *("x ab" * n for n in range(10)))
    assert found == pytest.approx([min(n, limit) / limit for n in range(10)])


def test_what_overlaps_counts_once():
    assert score(RegexFormat(pattern="aa", match="count", limit=4), "aaaa") == [0.5]


@pytest.mark.parametrize("match", ["fullmatch", "search", "count"])
def test_a_pattern_that_takes_too_long_gives_no_score(match, caplog):
    reward = RegexFormat(pattern=HANGS, match=match, timeout=0.05)
    with caplog.at_level(logging.ERROR):
        hung, rest = score(reward, "a" * 60 + "b", "aaa")
    assert hung != hung
    assert rest == 1
    assert [r.message for r in caplog.records] == [
        f"reward regex gave no answer within 0.05 s for '{'a' * 60}b'"
    ]


def test_other_threads_go_on_meanwhile():
    reward = RegexFormat(pattern=HANGS, timeout=0.4)
    thread = Thread(target=score, args=(reward, "a" * 60 + "b"))
    thread.start()
    times = [time.perf_counter()]
    while thread.is_alive():
        times.append(time.perf_counter())
    longest = max(b - a for a, b in pairwise(times))
    assert longest < (times[-1] - times[0]) / 2


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[", "(?<n>a", r"\1"])
def test_a_pattern_that_is_none(pattern):
    with pytest.raises(RewardError, match=r"^reward\.pattern=.* is no regular expression: .*posi"):
        RegexFormat(pattern=pattern)


def test_a_limit_is_for_counting():
    with pytest.raises(RewardError, match=r"reward\.limit=2 .*reward\.match=count"):
        RegexFormat(pattern="a", limit=2)


def score_with(reward, *pairs):
    texts, answers = zip(*pairs, strict=True)
    metadata = [{"answer": answer} for answer in answers]
    samples = Samples(["0 "] * len(texts), metadata, torch.arange(len(texts)), texts=texts)
    return reward.score(samples)["regex"].tolist()


def test_the_answer_stands_in_the_pattern():
    reward = RegexFormat(pattern=r"#+ ?{answer}", match="search", answer_column="answer")
    pairs = [("so ## 4.5", "4.5"), ("## 425", "4.5"), ("4.5", "4.5"), ("#7", 7)]
    assert score_with(reward, *pairs) == [1, 0, 0, 1]
    twice = RegexFormat(pattern="{answer}{2}", answer_column="answer")
    assert score_with(twice, ("abab", "ab"), ("abb", "ab")) == [1, 0]


def test_a_sample_without_an_answer_has_no_score():
    reward = RegexFormat(pattern="{answer}", answer_column="answer")
    missing, right = score_with(reward, ("4", None), ("4", "4"))
    assert missing != missing
    assert right == 1


def test_answers_and_patterns_go_together():
    with pytest.raises(RewardError, match="has no effect"):
        RegexFormat(pattern="4", answer_column="answer")
    with pytest.raises(RewardError, match=r"reward\.answer_column=answer"):
        RegexFormat(pattern="{answer}")
    reward = RegexFormat(pattern="{answer}", answer_column="answer")
    with pytest.raises(RewardError, match="its answer is None"):
        reward.check_prompts([Prompt("2+2", {"answer": None})])
    with pytest.raises(RewardError, match="lacks answer"):
        reward.check_prompts([Prompt("2+2", {})])
