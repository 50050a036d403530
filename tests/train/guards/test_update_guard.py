import logging
from pathlib import Path
from typing import Any

import pytest

from rlfactory.hardware.local import Local
from rlfactory.train.guards.update_guard import Guard, GuardError, NonFiniteReport, describe
from rlfactory.utils.errors import TrainingError

CPU = Local(device="cpu")


def finding(update: int = 2, **changes: object) -> NonFiniteReport:
    facts: dict[str, object] = {
        "iteration": 12,
        "update": update,
        "micro_batch": 3,
        "rows": {"log-ratios": [1, 3], "the loss": []},
        "prompts": ["a", "b", "c", "b"],
        "samples": [4, 5, 6, 7],
    }
    return NonFiniteReport(**{**facts, **changes})  # type: ignore[arg-type]


class Others(Local):
    """One of several processes; another one has found something."""

    def first_rank_where(self, flag: bool) -> int:
        return 1

    def broadcast(self, value: Any, source: int = 0) -> Any:
        assert source == 1
        return "its words"


def test_what_is_finite_passes() -> None:
    guard = Guard()
    assert not guard.rejects(None, CPU)
    assert guard.consecutive == 0
    assert guard.metrics() == {}


def test_the_message_names_what_where_of_whom_and_what_to_try() -> None:
    guard = Guard(recorder=lambda found: Path("run/evidence/iteration_000012"))
    with pytest.raises(GuardError) as stopped:
        guard.rejects(finding(), CPU)
    assert isinstance(stopped.value, TrainingError)
    assert str(stopped.value) == (
        "Not finite: log-ratios of 2 of 4 items, the loss; iteration 12, update 2, micro-batch 3;"
        " this update was not made. Prompts: 'b'. Evidence: run/evidence/iteration_000012."
        " Try a smaller optimizer.lr or precision=fp32, or leave such updates out, at most 3 in a"
        " row: guard.non_finite=skip"
    )


def test_of_many_prompts_the_first_are_named() -> None:
    prompts = [f"prompt {n}" for n in range(9)]
    said = describe(finding(prompts=prompts, rows={"the loss": []}), None)
    assert "Prompts: 'prompt 0', 'prompt 1', 'prompt 2' and 6 more." in said
    assert "Evidence" not in said


def test_a_gradient_belongs_to_no_micro_batch() -> None:
    said = describe(finding(micro_batch=None, rows={"the gradient's norm": []}), None)
    assert said.startswith("Not finite: the gradient's norm; iteration 12, update 2; this")


def test_so_many_in_a_row_are_left_out_and_the_first_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[NonFiniteReport] = []

    def record(found: NonFiniteReport) -> Path:
        seen.append(found)
        return Path(f"kept_{found.update}")

    guard = Guard("skip", 2, record)
    guard.begin()
    with caplog.at_level(logging.WARNING):
        assert [guard.rejects(finding(n), CPU) for n in (1, 2)] == [True, True]
    assert guard.metrics() == {"guard/skipped": 2.0}
    with pytest.raises(GuardError, match=r"kept_1\. It is number 3 in a row, and guard\.max_skip"):
        guard.rejects(finding(3), CPU)
    assert [found.update for found in seen] == [1]
    assert "It is left out, number 2 in a row" in caplog.text


def test_an_update_that_is_made_begins_a_new_row() -> None:
    places = iter(map(Path, "ab"))
    guard = Guard("skip", 1, lambda found: next(places))
    for _ in range(2):
        assert guard.rejects(finding(), CPU)
        guard.accepted()
    assert next(places, None) is None, "each row has its evidence"
    assert guard.skipped == 2, "the iteration's count is another one"
    guard.begin()
    assert guard.metrics() == {"guard/skipped": 0.0}


def test_what_another_process_found_is_told_in_its_words() -> None:
    guard = Guard("skip", 1, lambda found: Path("never"))
    assert guard.rejects(None, Others(device="cpu"))
    with pytest.raises(GuardError, match="its words It is number 2 in a row"):
        guard.rejects(None, Others(device="cpu"))
