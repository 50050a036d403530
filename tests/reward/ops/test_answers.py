import logging

import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.exact import Exact
from rlfactory.reward.ops.answers import check_answers, compiled, last_match


def test_a_sample_without_an_answer_has_no_score(caplog):
    samples = Samples(
        [*"abcd"],
        [{"k": 1}, {"k": None}, {}, {"k": float("nan")}],
        torch.arange(4),
        texts=["1", "1", "2", "nan"],
    )
    with caplog.at_level(logging.ERROR):
        scores = Exact(answer_column="k").score(samples)["exact"]
    assert scores.isnan().tolist() == [False, True, True, True]
    assert scores[0] == 1
    assert "3 samples have no score" in caplog.text


def test_a_fault_names_the_prompt():
    prompts = [Prompt("a", {"k": 1}), Prompt("b", {"k": 2})]
    with pytest.raises(RewardError, match="prompt 'b': its k is two"):
        check_answers(prompts, "k", lambda answer: "is two" if answer == 2 else None)


def test_the_last_match_says_its_first_group_or_all():
    assert last_match(compiled(r"\d", "k"), "a1b2", 1.0) == "2"
    assert last_match(compiled(r"a(\d)?", "k"), "a1a", 1.0) == ""
    assert last_match(compiled(r"\d", "k"), "ab", 1.0) is None


def test_limits_and_invalid_patterns():
    with pytest.raises(TimeoutError):
        last_match(compiled("(a|aa)+$", "k"), "a" * 60 + "b", 0.05)
    with pytest.raises(RewardError, match=r"k=\["):
        compiled("[", "k")
