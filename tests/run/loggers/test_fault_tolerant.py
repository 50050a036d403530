"""A service that fails, at each of the things that it is told."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory.run.loggers.base import Logger, SampleTable
from rlfactory.run.loggers.fault_tolerant import fault_tolerant
from rlfactory.run.loggers.several import Several
from rlfactory.run.metrics import MetricsLog, read

STEPS = ["resume", "start", "log", "images", "table", "finish"]


def tell(logger: Logger) -> None:
    logger.resume({}, 3)
    logger.start(Path("my run"), {})
    logger.log(4, {"x": 1.0})
    logger.images(4, "eval/samples", Path("x.png"), "caption")
    logger.table(4, "eval/table", SampleTable("t", [], []))
    logger.finish()


@pytest.mark.parametrize("step", STEPS)
def test_after_a_failure_it_is_left_alone_and_the_others_are_not(
    noting: Callable[..., Logger], caplog: pytest.LogCaptureFixture, step: str
) -> None:
    told: list[Any] = []
    said: list[str] = []
    parts = {"bad": noting(told, "bad", step), "good": noting(told, "good")}
    with caplog.at_level(logging.WARNING):
        tell(fault_tolerant(Several(of=["bad", "good"], parts=parts), said.append))
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
