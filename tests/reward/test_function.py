"""Anybody's function as a reward."""

import logging
from pathlib import Path

import pytest
import torch

from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.function import Function

SOURCE = """
import time
def vowels(prompts, completions):
    return [sum(c in "aeiou" for c in text) for text in completions]
def unsure(prompts, completions):
    return [None, float("nan"), 1]
def by_target(prompts, completions, target):
    return [float(len(text) == want) for text, want in zip(completions, target)]
def with_all(prompts, completions, **columns):
    return [len(columns)] * len(completions)
def short(prompts, completions):
    return [1.0]
def lost(prompts, completions):
    return None
def worded(prompts, completions):
    return ["good"] * len(completions)
def broken(prompts, completions):
    raise RuntimeError("no judge today")
def slow(prompts, completions):
    time.sleep(5)
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path / "mine.py"


def ask(file: Path, name: str, timeout: float = 10.0) -> list[float]:
    metadata = [{"target": 3}, {"target": 2}, {"target": 1}]
    samples = Samples(["p"] * 3, metadata, torch.arange(3), texts=["aeb", "xy", "xyz"])
    reward = Function(function=f"{file}:{name}", timeout=timeout)
    assert reward.main == name
    return reward.score(samples)[name].tolist()


def test_its_numbers_are_the_scores(file: Path) -> None:
    assert ask(file, "vowels") == [2.0, 0.0, 0.0]


def test_columns_come_where_they_are_asked_for(file: Path) -> None:
    assert ask(file, "by_target") == [1.0, 1.0, 0.0]
    assert ask(file, "with_all") == [1.0, 1.0, 1.0]


def test_none_and_nan_are_no_scores(file: Path) -> None:
    found = torch.tensor(ask(file, "unsure"))
    assert found.isnan().tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("short", "returned 1 scores for 3"),
        ("lost", "returned"),
        ("worded", "'good', which is no number"),
    ],
)
def test_wrong_answers_are_errors(file: Path, name: str, said: str) -> None:
    with pytest.raises(RewardError, match=said):
        ask(file, name)


@pytest.mark.parametrize(
    ("name", "said"), [("broken", "no judge today"), ("slow", "took more than 0.2 s")]
)
def test_a_failure_is_logged_and_scores_nothing(
    file: Path, name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert torch.tensor(ask(file, name, timeout=0.2)).isnan().all()
    assert said in caplog.text


@pytest.mark.parametrize(
    "path", ["nowhere.py:f", "no.such.module:f", "math:nothing", "plain", "{file}:number"]
)
def test_what_is_not_there_is_said_at_once(file: Path, path: str) -> None:
    with pytest.raises(RewardError, match="reward.function"):
        Function(function=path.format(file=file))


def test_a_module_will_do() -> None:
    assert Function(function="statistics:mean").main == "mean"
