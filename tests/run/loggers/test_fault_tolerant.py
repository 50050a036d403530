"""A service that fails, at each of the things that it is told."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.run.loggers import fault_tolerant as module
from rlfactory.run.loggers.base import Logger
from rlfactory.run.loggers.fault_tolerant import FaultTolerant, Several
from rlfactory.run.metrics import MetricsLog, read
from rlfactory.run.samples import SampleTable
from rlfactory.utils.errors import UserError

STEPS = ["resume", "start", "log", "images", "table", "finish"]


def fault_tolerant(logger: Logger, show: Callable[[str], None]) -> FaultTolerant:
    return FaultTolerant({type(logger).__name__: lambda: logger}, show)


def tell(logger: Logger) -> None:
    logger.resume({}, 3)
    logger.start(Path("my run"), {})
    logger.log(4, {"x": 1.0})
    logger.images(4, "eval/samples", Path("x.png"), "caption")
    logger.table(4, "eval/table", SampleTable("t", [], []))
    logger.finish()
    logger.finish()  # at the end of the run, and again at that of what holds its folder


@pytest.mark.parametrize("step", STEPS)
def test_after_a_failure_it_is_left_alone_and_the_others_are_not(
    noting: Callable[..., Logger], caplog: pytest.LogCaptureFixture, step: str
) -> None:
    told: list[Any] = []
    said: list[str] = []
    bad, good = noting(told, "bad", step), noting(told, "good")
    with caplog.at_level(logging.WARNING):
        tell(FaultTolerant({"bad": lambda: bad, "good": lambda: good}, said.append))
    assert [t[1] for t in told if t[0] == "good"] == STEPS
    before = STEPS[: STEPS.index(step)]
    # it is closed all the same
    assert [t[1] for t in told if t[0] == "bad"] == before + ["finish"] * (step != "finish")
    (line,) = said
    assert line.startswith("logger bad failed (no network); the run continues")
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


def test_it_says_what_to_type(noting: Callable[..., Logger]) -> None:
    said: list[str] = []
    tell(fault_tolerant(noting([], fails_at="log"), said.append))
    (line,) = said
    assert line.startswith("logger Noting failed")
    assert line.endswith("rlfactory sync 'my run'")


def test_all_goes_through_and_the_state_too(noting: Callable[..., Logger]) -> None:
    told: list[Any] = []
    logger = fault_tolerant(noting(told, "one"), pytest.fail)
    tell(logger)
    assert [t[1] for t in told] == STEPS
    assert told[3] == ("one", "images", 4, "eval/samples", Path("x.png"), "caption")
    assert logger.state_dict() == {"one": "id of one"}


def test_a_stop_is_no_failure(
    noting: Callable[..., Logger], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = noting([])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bad, "log", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fault_tolerant(bad, pytest.fail).log(0, {})


def test_metrics_stay_when_the_network_goes(noting: Callable[..., Logger], tmp_path: Path) -> None:
    said: list[str] = []
    log = MetricsLog(
        tmp_path / "m.jsonl", [fault_tolerant(noting([], fails_at="log"), said.append)]
    )
    for i in range(3):
        log.log(i, {"x": float(i)})
    assert [record["x"] for record in read(tmp_path / "m.jsonl")] == [0.0, 1.0, 2.0]
    assert len(said) == 1


def _raise(error: BaseException) -> Any:
    raise error


class Unprintable(Exception):
    """An error whose text is an error."""

    def __str__(self) -> str:
        raise ValueError


ODD_STATES: list[Callable[[], Any]] = [
    lambda: _raise(RuntimeError("no")),
    lambda: _raise(Unprintable()),
    lambda: _raise(SystemExit(3)),
    lambda: object(),
    lambda: {"a": object()},
    lambda: {"a": {1, 2}},
    lambda: {"a": torch.zeros(3)},
    lambda: {"a": "\ud800"},
    lambda: [1],
]


@pytest.mark.parametrize("state", ODD_STATES)
def test_an_odd_state_is_left_out_of_the_checkpoint(
    noting: Callable[..., Logger], monkeypatch: pytest.MonkeyPatch, state: Callable[[], Any]
) -> None:
    bad, good = noting([], "bad"), noting([], "good")
    monkeypatch.setattr(bad, "state_dict", state)
    said: list[str] = []
    logger = FaultTolerant({"bad": lambda: bad, "good": lambda: good}, said.append)
    assert logger.state_dict() == {"good": "id of good"}
    assert logger.state_dict() == {"good": "id of good"}
    assert len(said) == 1


def test_one_that_can_not_be_made_is_left_out(noting: Callable[..., Logger]) -> None:
    told: list[Any] = []
    said: list[str] = []
    makers: dict[str, Callable[[], Any]] = {
        "bad": lambda: _raise(OSError("no server")),
        "none": lambda: 3,
        "good": lambda: noting(told),
    }
    tell(FaultTolerant(makers, said.append))
    assert [t[0] for t in told] == STEPS
    assert [line.split(";")[0] for line in said] == [
        "logger bad failed (no server)",
        "logger none failed (int is no Logger)",
    ]


def test_one_that_may_not_be_made_is_an_error() -> None:
    with pytest.raises(UserError, match="trust"):
        FaultTolerant({"bad": lambda: _raise(UserError("needs trust"))}, pytest.fail)


def test_one_that_hangs_is_left_alone(
    noting: Callable[..., Logger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.05)
    monkeypatch.setattr(module, "FINISH_SECONDS", 0.05)
    bad, release = noting([]), threading.Event()
    monkeypatch.setattr(bad, "log", lambda *_: release.wait())
    said: list[str] = []
    logger = fault_tolerant(bad, said.append)
    logger.start(Path("run"), {})
    for iteration in range(3):
        logger.log(iteration, {})
    assert logger.state_dict() == {}
    logger.finish()
    release.set()
    (line,) = said
    assert line.startswith("logger Noting failed (no answer within 0.05 s); the run continues")


CALLS: list[tuple[Any, ...]] = [
    ("resume", {"a": "id of a"}, 3),
    ("restart", Path("run")),
    ("start", Path("run"), {"seed": 1}),
    ("log", 4, {"x": 1.0}),
    ("images", 4, "eval/samples", Path("x.png"), "caption"),
    ("table", 4, "eval/table", SampleTable("t", [], [])),
    ("finish",),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_each_is_told_everything_in_order(
    noting: Callable[..., Logger], call: tuple[Any, ...]
) -> None:
    told: list[Any] = []
    parts = {"b": noting(told, "b"), "a": noting(told, "a"), "unused": noting(told, "unused")}
    name, *args = call
    getattr(Several(of=["a", "b"], parts=parts), name)(*args)
    assert told == [("a", *call), ("b", *call)]


def test_the_state_is_that_of_all(noting: Callable[..., Logger]) -> None:
    parts = {name: noting([], name) for name in ("a", "b")}
    assert Several(of=["a", "b"], parts=parts).state_dict() == {"a": "id of a", "b": "id of b"}
