import math

import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward import python_code
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.python_code import NotRunError, PythonCode

TESTS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]
RIGHT = "def add(a, b):\n    return a + b"
WRONG = "def add(a, b):\n    return 3"


def score(reward, *texts, tests=TESTS, prompt="add: "):
    metadata = [{"tests": tests}] * len(texts)
    samples = Samples([prompt] * len(texts), metadata, torch.arange(len(texts)), texts=texts)
    scores = reward.score(samples)
    check_scores(reward, scores, len(texts))
    return scores["python"].tolist()


def test_programs_are_scored_by_their_tests():
    assert score(PythonCode(), RIGHT, WRONG) == [1, 0]
    assert score(PythonCode(partial="tests"), WRONG, "") == [0.5, 0]
    assert score(PythonCode(), RIGHT, tests="\n".join(TESTS)) == [1]


def test_the_last_block_of_code_is_run():
    text = f"First:\n```python\n{WRONG}\n```\nBetter:\n```python\n{RIGHT}\n```\nDone."
    assert score(PythonCode(), text) == [1]
    assert score(PythonCode(fenced=False), text) == [0]
    assert score(PythonCode(), f"```python\n{RIGHT}") == [1]  # cut at the length limit
    shown = f"```Python\r\n{RIGHT}\n```\nIt prints:\n```text\n4\n```\nDone."
    assert score(PythonCode(), shown) == [1]


def test_a_program_may_begin_in_the_prompt():
    head, body = RIGHT.split("\n")
    assert score(PythonCode(with_prompt=True), "\n" + body, prompt=head) == [1]


def test_what_could_not_be_run_has_no_score(monkeypatch):
    def refuse(*args, **limits):
        raise NotRunError("no process")

    monkeypatch.setattr(python_code, "count_passed", refuse)
    assert math.isnan(score(PythonCode(), RIGHT)[0])
    assert math.isnan(score(PythonCode(), RIGHT, tests=None)[0])


@pytest.mark.parametrize("tests", [None, [], "", ["pass", 3], "assert (", 7])
def test_tests_that_are_no_python_are_refused(tests):
    with pytest.raises(RewardError, match="'add'.*tests"):
        PythonCode().check_prompts([Prompt("add", {"tests": tests})])


def test_a_prompt_without_tests_is_refused():
    with pytest.raises(RewardError, match="lacks cases"):
        PythonCode(tests_column="cases").check_prompts([Prompt("add", {"tests": TESTS})])
    PythonCode().check_prompts(Prompt("add", {"tests": tests}) for tests in (TESTS, TESTS[0]))
