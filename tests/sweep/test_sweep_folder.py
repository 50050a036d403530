"""What a sweep's folder may hold, and who has it."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rlfactory.config.problems import PlanError
from rlfactory.sweep.sweep_folder import (
    default_folder,
    failure,
    last_line,
    locked,
    merge_table,
    read_status,
    state_of,
    take,
)
from rlfactory.sweep.table import Column, Job, Row, Table, TableInfo


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("done", "done"),
        ("failed", "retry"),
        ("running", "resume"),
        ("interrupted", "resume"),
        ("preempted", "resume"),
    ],
)
def test_states(tmp_path: Path, word: str, state: str) -> None:
    assert state_of(tmp_path) == "new"
    (tmp_path / "STATUS").write_text(f"{word}\n")
    assert state_of(tmp_path) == state


def test_the_last_whole_line_about_training_counts(tmp_path: Path) -> None:
    (tmp_path / "STATUS").write_text("running")
    (tmp_path / "metrics.jsonl").write_text(
        '{"iteration": 3, "time": 6.5, "reward/a/mean": 0.5, "reward/b/mean": null}\n'
        '{"iteration": 3, "time": 7.0, "eval/a/mean": 0.1}\n'
        '{"iteration": 4, "reward/a/me'
    )
    found = read_status(tmp_path, "b")
    assert (found.state, found.iteration, found.seconds, found.score) == ("resume", 3, 6.5, 0.5)
    assert math.isnan(read_status(tmp_path / "none").score)


def test_a_long_file_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 1, "reward/a/mean": 1}\n' * 5000)
    assert last_line(path) == {"iteration": 1, "reward/a/mean": 1}
    path.write_text("torn")
    assert last_line(path) is None


def test_why_a_job_failed(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("iteration 1\nerror: old\nerror: no memory\nThe traceback is in x\n")
    assert failure(tmp_path, output) == ["error: no memory"]
    trace = "Traceback (most recent call last):\n  one\n  two\nValueError: new\n"
    (tmp_path / "log.txt").write_text(trace.replace("new", "old") + "2026 INFO on\n" + trace)
    said = failure(tmp_path, output)
    assert said[0] == "error: no memory"
    assert said[1:] == trace.splitlines()


def test_a_job_that_said_nothing_of_a_fault(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("\n".join(map(str, range(20))) + "\n\n")
    assert failure(tmp_path, output) == ["14", "15", "16", "17", "18", "19"]
    assert failure(tmp_path, tmp_path / "none") == []


ABOUT = TableInfo("t", "p", "1", None, "", "")
JOBS = [Job(f"{row}-s0", row, f"{row}-s0", [f"algo={row}", "seed=0"]) for row in ("a", "b")]
TABLE = Table("x", "tiny", ABOUT, [Column("c", "C", "")], [Row("a"), Row("b")], JOBS)


def test_a_folder_of_the_same_sweep_keeps_its_jobs(tmp_path: Path) -> None:
    assert merge_table(tmp_path / "none", TABLE) == TABLE
    TABLE.save(tmp_path)
    assert merge_table(tmp_path, TABLE) == TABLE
    more = Job("a-s1", "a", "a-s1", ["algo=a", "seed=1"])
    assert merge_table(tmp_path, replace(TABLE, jobs=[more])).jobs == [JOBS[0], more, JOBS[1]]


def test_what_a_kill_or_a_lock_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".sweep.json.x1").touch()
    assert merge_table(tmp_path, TABLE) == TABLE


def test_jobs_that_began_otherwise_are_named(tmp_path: Path) -> None:
    TABLE.save(tmp_path)
    other = replace(JOBS[1], overrides=["algo=c", "seed=0", "x=1"])
    assert merge_table(tmp_path, replace(TABLE, jobs=[JOBS[0], other])).jobs == [JOBS[0], other]
    (tmp_path / other.folder).mkdir()
    with pytest.raises(PlanError) as refused:
        merge_table(tmp_path, replace(TABLE, jobs=[JOBS[0], other]))
    (problem,) = refused.value.problems
    assert "b-s0 had algo=b; now it has algo=c x=1" in problem.message
    assert problem.fix == f"sweep_dir={tmp_path}_2"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("sweep.json", "{}", "about is missing"),
        ("weights.bin", "", "is not a sweep: it holds weights.bin"),
    ],
)
def test_a_folder_of_something_else(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PlanError, match=said):
        merge_table(tmp_path, TABLE)


def test_a_folder_of_another_sweep(tmp_path: Path) -> None:
    replace(TABLE, size="full").save(tmp_path)
    with pytest.raises(PlanError, match="holds the sweep x, size full"):
        merge_table(tmp_path, TABLE)


def test_one_holds_a_folder(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "s"),
        pytest.raises(PlanError, match="another command"),
        locked(tmp_path / "s"),
    ):
        pass
    with locked(tmp_path / "s"):
        pass


def test_a_lock_lives_as_long_as_who_inherited_it(tmp_path: Path) -> None:
    first = take(tmp_path / "lock")
    assert first is not None
    second = os.dup(first)
    os.close(first)
    assert take(tmp_path / "lock") is None
    os.close(second)
    assert take(tmp_path / "lock") is not None


def test_a_file_of_ones_own_has_a_folder_too() -> None:
    assert default_folder("a/b/mine.yaml", "tiny") == Path("outputs/sweeps/mine-tiny")
