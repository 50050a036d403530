"""Finding a function of one's own, calling it, and reading its scores."""

import asyncio
import logging
import math
import threading

import numpy as np
import pytest
import torch

from rlfactory.reward.base import RewardError
from rlfactory.reward.ops.python_function import call_with_timeout, load_function, to_scores

CODE = """
from dataclasses import dataclass

NUMBER = 3

@dataclass
class Box:
    value: "int" = 1

def length(text):
    return len(text)
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path / "mine.py"


def test_a_function_of_an_installed_module():
    function, name = load_function("rlfactory.reward.repetition:repeated_share")
    assert name == "repeated_share"
    assert function("so so so", 1) == pytest.approx(2 / 3)


def test_a_function_of_a_file(path):
    function, name = load_function(f"{path}:length")
    assert (name, function("abc")) == ("length", 3)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("length", "neither package.module:name nor"),
        ("mine.py:", "neither"),
        (":length", "neither"),
        ("nowhere.at.all:length", "nowhere.at.all can't be imported: ModuleNotFoundError"),
        ("gone.py:length", "there is no file /.*gone.py"),
        ("{path}:lenght", "has no lenght"),
        ("{path}:NUMBER", "NUMBER is not a function but 3"),
        ("{broken}:length", "can't be imported: SyntaxError"),
    ],
)
def test_functions_that_are_not_there(path, function, message):
    broken = path.with_name("broken.py")
    broken.write_text("def length(:\n")
    with pytest.raises(RewardError, match=rf"^reward\.function.*{message}"):
        load_function(function.format(path=path, broken=broken))


def test_an_answer_is_what_the_call_returned():
    done = call_with_timeout(lambda: None, 60, "mine")
    assert done is not None
    assert done.result() is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("no such thing"), "no such thing"),
        (SystemExit(3), "SystemExit: 3"),
        (TimeoutError("a server's"), "a server's"),
    ],
    ids=repr,
)
def test_an_exception_is_logged_and_there_is_no_answer(caplog, error, said):
    def raises():
        raise error

    assert call_with_timeout(raises, 60, "mine") is None
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "reward mine raised an exception" in caplog.text
    assert said in caplog.text


def test_a_hanging_call_is_left_behind(caplog):
    before, release = set(threading.enumerate()), threading.Event()
    assert call_with_timeout(lambda: release.wait(30), 0.05, "mine") is None
    assert "reward mine gave no answer within 0.05 s" in caplog.text
    (left,) = set(threading.enumerate()) - before
    assert left.daemon
    release.set()
    left.join(10)
    assert not left.is_alive()


def test_numbers_are_float32_and_none_is_nan():
    found = to_scores([np.float32(0.5), None, True, math.nan, 3e38], 5, "mine", "images")
    assert found.dtype == torch.float32
    assert found.isnan().tolist() == [False, True, False, True, False]
    assert found[[0, 2]].tolist() == [0.5, 1]
    assert to_scores([], 0, "mine", "images").shape == (0,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], " returned 1 scores for 2 images"),
        ([1.0] * 3, " returned 3 scores for 2 images"),
        ([1.0, "good"], ": score 1 is 'good'"),
        ([[1.0], 2.0], r": score 0 is \[1.0\]"),
        ([0.0, -math.inf], ": score 1 is -inf; a score is finite"),
        ([1e300, 0.0], ": score 0 is 1e\\+300; a score is finite"),
    ],
)
def test_values_that_are_no_scores(values, message):
    with pytest.raises(RewardError, match=f"^reward mine{message}"):
        to_scores(values, 2, "mine", "images")


async def _later(value: float) -> list[float]:
    await asyncio.sleep(0)
    return [value]


async def _never() -> None:
    await asyncio.sleep(60)


def test_an_async_function_is_awaited_even_where_an_event_loop_runs() -> None:
    async def as_in_a_notebook() -> object:
        done = call_with_timeout(lambda: _later(2.0), 10, "later")
        assert done is not None
        return done.result()

    assert asyncio.run(as_in_a_notebook()) == [2.0]
    assert call_with_timeout(_never, 0.05, "never") is None
