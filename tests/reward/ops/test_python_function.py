"""Finding a function of one's own, calling it, and reading its scores."""

import asyncio
import logging
import threading

import numpy as np
import pytest
import torch

from rlfactory.reward.base import RewardError
from rlfactory.reward.ops.python_function import (
    call_with_timeout,
    function_scores,
    load_function,
    made_function,
)

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
    function, name = load_function("rlfactory.utils.text:repeated_share")
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


def called(work, timeout=60.0, count=2):
    return call_with_timeout(work, timeout, "mine", count)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("no such thing"), "no such thing"),
        (SystemExit(3), "SystemExit: 3"),
        (TimeoutError("a server's"), "a server's"),
    ],
    ids=repr,
)
def test_an_exception_is_logged_and_nothing_is_scored(caplog, error, said):
    def raises():
        raise error

    assert called(raises)["mine"].isnan().tolist() == [True, True]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "reward mine raised an exception" in caplog.text
    assert said in caplog.text


def test_an_exception_in_a_generator_is_the_functions_own(caplog):
    assert called(lambda: (1 / n for n in (1, 0)))["mine"].isnan().all()
    assert "division by zero" in caplog.text


def test_a_hanging_call_is_left_behind(caplog):
    before, release = set(threading.enumerate()), threading.Event()
    assert called(lambda: release.wait(30), 0.05)["mine"].isnan().all()
    assert "reward mine gave no answer within 0.05 s" in caplog.text
    (left,) = set(threading.enumerate()) - before
    assert left.daemon
    release.set()
    left.join(10)
    assert not left.is_alive()


def test_several_scores_of_which_the_functions_own_trains():
    found = function_scores({"mine": [1, 2], "other": np.zeros(2)}, 2, "mine")
    assert {name: score.tolist() for name, score in found.items()} == {
        "mine": [1, 2],
        "other": [0, 0],
    }
    assert function_scores({"avg": [1, 2]}, 2, "mine")["mine"].tolist() == [1, 2]
    with pytest.raises(RewardError, match="the scores a, b; one of them must be named mine"):
        function_scores({"a": [1, 2], "b": [1, 2]}, 2, "mine")


@pytest.mark.parametrize("info", [{"about": "them"}, None, "text"])
def test_scores_and_info(info):
    assert function_scores(([1.0, 2.0], info), 2, "mine")["mine"].tolist() == [1, 2]


async def _later(value: float) -> list[float]:
    await asyncio.sleep(0)
    return [value]


async def _never() -> None:
    await asyncio.sleep(60)


def test_an_async_function_is_awaited_even_where_an_event_loop_runs() -> None:
    async def as_in_a_notebook() -> object:
        return call_with_timeout(lambda: _later(2.0), 10, "later", 1)

    assert asyncio.run(as_in_a_notebook()) == {"later": 2.0}
    assert call_with_timeout(_never, 0.05, "never", 1)["never"].isnan()


def test_what_an_async_function_keeps_serves_its_next_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As the connections of a client do."""
    free = asyncio.Semaphore(1)

    async def one(score: object) -> object:
        async with free:
            await asyncio.sleep(0)
            return score() if callable(score) else score

    async def both(score: object) -> object:
        return await asyncio.gather(one(score), one(2.0))

    def exits() -> None:
        raise SystemExit(3)

    for score in (1.0, exits, 1.0):
        assert called(lambda score=score: both(score))["mine"].isnan().any() == callable(score)
    assert called(_never, 0.05)["mine"].isnan().all()
    assert called(lambda: both(1.0))["mine"].tolist() == [1, 2]
    assert [r.getMessage().split(" mine ")[1] for r in caplog.records] == [
        "raised an exception",
        "gave no answer within 0.05 s",
    ]


def test_an_async_function_that_blocks_does_not_keep_others_from_their_turn() -> None:
    release = threading.Event()

    async def blocks() -> None:
        release.wait(30)

    assert called(blocks, 0.05)["mine"].isnan().all()
    assert called(lambda: _later(2.0), 10, 1)["mine"].tolist() == [2]
    release.set()


class Brightness(torch.nn.Module):
    def forward(self, images):
        return images.float().mean((1, 2, 3))


def test_a_module_is_known_by_its_forward():
    """Its own call takes anything, so the mistake was one of each batch."""
    given = ("images", "prompts", "metadata")
    with pytest.raises(RewardError, match=r"called with \(images, prompts, metadata\)"):
        made_function(Brightness(), "brightness", given, torch.device("cpu"))
    _, is_made = made_function(Brightness(), "brightness", ("images",), torch.device("cpu"))
    assert not is_made
