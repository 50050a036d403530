from pathlib import Path

from rlfactory.report.group import Group, Member
from rlfactory.report.notes import INTERVAL, notes_of
from rlfactory.report.read import Run
from rlfactory.sweep.table import Column

COLUMN = Column("a", "A", "eval/a")


def member(name: str, state: str, fault: str = "") -> Member:
    run = None if fault else Run(Path(name), state, {})
    return Member(Path(name), run, state, fault)


def test_a_report_of_what_is_done_says_what_an_interval_is() -> None:
    group = Group("row", [member("r", "done")])
    assert notes_of([group], [COLUMN], [{"a": [1]}], False) == [INTERVAL]


def test_what_is_left_out_is_named_once() -> None:
    members = [member("r", "done"), member("x", "damaged", "torn"), member("y", "running")]
    groups = [Group("row", members), Group("base", members, untrained=True)]
    notes = notes_of(groups, [COLUMN], [{"a": [1]}, {"a": []}], False)
    assert notes[1:] == [
        "Left out, for it is damaged: x (torn).",
        "Not counted, for they are not done: y (running).",
    ]


def test_of_many_that_are_not_done_some_are_named() -> None:
    group = Group("row", [member(f"r{i}", "failed") for i in range(9)])
    assert notes_of([group], [], [{}], False)[1].endswith("r4 (failed) and 4 more.")


def test_a_number_that_a_done_run_lacks_is_told() -> None:
    group = Group("row", [member("r", "done"), member("q", "done")])
    columns = [COLUMN, Column("b", "B", ""), Column("c", "C", "eval/c")]
    notes = notes_of([group], columns, [{"a": [1], "b": [], "c": []}], False)
    assert notes[1] == "row: not all runs measured A 1 of 2."


def test_runs_of_one_seed_are_no_independent_runs() -> None:
    members = [
        Member(Path(n), Run(Path(n), "done", {"seed": s}), "done") for n, s in ("a0", "b0", "c1")
    ]
    groups = [Group("row", members), Group("base", members, untrained=True)]
    notes = notes_of(groups, [], [{}, {}], False)
    assert notes[1:] == ["row: 2 runs have seed 0: intervals are too narrow."]
