import math

import numpy as np
import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.reward.base import RewardError, check_scores
from rlfactory.reward.function import Function
from rlfactory.utils.live_objects import live_objects

CODE = """
import asyncio
from threading import Event

release = Event()
seen = {}

def length(prompts, completions):
    return [len(p) * 100 + len(c) for p, c in zip(prompts, completions)]

def only_completions(completions, **columns):
    seen.update(columns)
    return [0.5 for _ in completions]

def answer(completions, solution, level=None):
    seen["level"] = level
    return [float(c == s) for c, s in zip(completions, solution)]

def optional(completions, weight=2.0):
    return [weight for _ in completions]

def result(completions):
    return seen["result"]

def raises(completions):
    raise KeyError("no such thing")

def hangs(completions):
    release.wait(30)

def meddles(completions):
    completions.clear()
    return [1.0, 2.0]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    right = float(solution_str == ground_truth) + extra_info["more"]
    return {"score": right, "acc": 1} if data_source == "sums" else right

waiting = []

async def both_wait(data_source, solution_str, ground_truth, extra_info=None):
    waiting.append(solution_str)
    while len(waiting) < 2:
        await asyncio.sleep(0)
    return compute_score(data_source, solution_str, ground_truth, extra_info)

def with_their_names(completions, solution_str, ground_truth):
    return [float(a == b) for a, b in zip(solution_str, ground_truth)]

def positional(prompts, completions, /):
    return []
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path / "mine.py"


@pytest.fixture
def score(path, samples_of):
    def score(name, *, result=None, metadata=None, timeout=60.0):
        reward = Function(function=f"{path}:{name}", timeout=timeout)
        state = reward.call.__globals__
        state["seen"].update(result=result)
        scores = reward.score(samples_of(["a", "bcd"], ["x", ""], metadata))
        check_scores(reward, scores, 2)
        assert [*scores] == [name]
        return scores[name].tolist(), state

    return score


def test_prompts_and_completions(score):
    assert score("length")[0] == [101, 3]


def test_columns_are_passed_as_lists_to_whoever_takes_them(score):
    metadata = [{"solution": "a", "level": 1}, {"solution": "b", "source": "s"}]
    assert score("length", metadata=metadata)[0] == [101, 3]
    values, state = score("answer", metadata=metadata)
    assert values == [1, 0]
    assert state["seen"]["level"] == [1, None]
    _, state = score("only_completions", metadata=metadata)
    del state["seen"]["result"]
    assert state["seen"] == {
        "prompts": ["x", ""],
        "solution": ["a", "b"],
        "level": [1, None],
        "source": [None, "s"],
    }
    assert score("optional")[0] == [2, 2]


class Lengths(torch.nn.Module):
    def forward(self, completions):
        return torch.tensor([float(len(text)) for text in completions])


def test_a_module_gets_what_its_forward_takes(samples_of):
    with live_objects({"reward": Lengths()}):
        reward = Function(function="object:reward")
    samples = samples_of(["a", "bcd"], ["x", ""], [{"level": 1}, {}])
    assert reward.score(samples)["reward"].tolist() == [1, 3]


def test_prompts_hide_a_column_of_that_name(score):
    assert score("length", metadata=[{"prompts": "long text"}, {"completions": 1}])[0] == [101, 3]


def test_a_column_that_no_prompt_has(score):
    with pytest.raises(RewardError, match="answer takes solution, and there are completions, lev"):
        score("answer", metadata=[{"level": 1}, {}])


@pytest.mark.parametrize("name", ["compute_score", "both_wait"])
def test_a_function_of_verl_scores_each_sample(path, samples_of, name):
    reward = Function(function=f"{path}:{name}")
    rows = [
        {"data_source": source, "reward_model": {"ground_truth": "a"}, "extra_info": {"more": 2}}
        for source in ("sums", "others")
    ]
    chats = [ChatText([{"role": "user", "content": "x"}]), "x"]
    scores = reward.score(samples_of(["a", "bcd"], chats, rows))
    assert scores[name].tolist() == [3, 2]
    with pytest.raises(RewardError, match=f"{name} takes reward_model, and there are"):
        reward.check_prompts([Prompt("x", {"answer": 1})])


def test_a_function_of_completions_may_have_verls_names_as_columns(score):
    rows = [{"solution_str": "a", "ground_truth": "a"}, {"solution_str": "b", "ground_truth": "c"}]
    assert score("with_their_names", metadata=rows)[0] == [1, 0]


def test_what_could_not_be_scored(score):
    values, _ = score("result", result=[None, math.nan])
    assert all(map(math.isnan, values))


@pytest.mark.parametrize(
    "result", [[1, 0], (1.0, 0.0), [True, False], [np.float32(1), np.int64(0)], [1, None]]
)
def test_numbers_of_any_kind(score, result):
    values, _ = score("result", result=result)
    assert values[0] == 1
    assert values[1] == 0 or result[1] is None


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "there came None; wanted are 2 numbers, one a sample"),
        ("ab", "there came a str"),
        (np.zeros((2, 2)), r"there came a ndarray \[2, 2\]"),
        ([1.0], "there came 1 of them"),
        ([1.0, "good"], "score 1 is 'good'"),
    ],
)
def test_results_of_the_wrong_kind(score, result, message):
    with pytest.raises(RewardError, match=f"^reward result: {message}"):
        score("result", result=result)


@pytest.mark.parametrize(
    ("name", "said"),
    [("raises", "no such thing"), ("hangs", "reward hangs gave no answer within 0.05 s")],
)
def test_a_call_that_fails_is_logged_and_nothing_is_scored(score, caplog, name, said):
    values, state = score(name, timeout=0.05 if name == "hangs" else 60)
    assert all(map(math.isnan, values))
    assert said in caplog.text
    state["release"].set()


def test_samples_are_not_changed(path, samples_of):
    samples = samples_of(["a", "b"])
    assert Function(function=f"{path}:meddles").score(samples)["meddles"].tolist() == [1, 2]
    assert samples.texts == ["a", "b"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("{path}:lenght", "has no lenght"),
        ("{path}:positional", "must take prompts and completions by name"),
    ],
)
def test_errors_at_construction(path, function, message):
    with pytest.raises(RewardError, match=rf"^reward\.function.*{message}"):
        Function(function=function.format(path=path))


def test_scores_are_float32(path, samples_of):
    scores = Function(function=f"{path}:length").score(samples_of(["a"]))
    assert scores["length"].dtype == torch.float32


def test_columns_that_prompts_lack_are_named_before_the_run(path):
    reward = Function(function=f"{path}:answer")
    reward.check_prompts([])
    reward.check_prompts([Prompt("a", {"solution": "b"})])
    with pytest.raises(RewardError, match="answer takes solution, and there are completions, "):
        reward.check_prompts([Prompt("a", {"level": 1})])


def test_a_class_is_called_once_and_its_object_scores(tmp_path, samples_of):
    path = tmp_path / "own.py"
    path.write_text(
        """
class Counted:
    made = 0

    def __init__(self):
        Counted.made += 1

    def __call__(self, completions, **columns):
        return [Counted.made] * len(completions)


class Needy:
    def __init__(self, path): ...


class Silent: ...
"""
    )
    reward = Function(function=f"{path}:Counted")
    for _ in range(2):
        assert reward.score(samples_of(["a", "b"]))["Counted"].tolist() == [1, 1]
    with pytest.raises(RewardError, match="Needy raised TypeError where it makes the function"):
        Function(function=f"{path}:Needy")
    with pytest.raises(RewardError, match="Silent makes .*, which can't be called"):
        Function(function=f"{path}:Silent")
