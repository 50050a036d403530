"""What a sweep's folder may hold, and who has it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rlfactory.problems import PlanError
from rlfactory.sweep.folder import default_folder, held, joined, take
from rlfactory.sweep.table import About, Column, Job, Row, Table

ABOUT = About("t", "p", "1", None, "", "")
JOBS = [Job(f"{row}-s0", row, f"{row}-s0", [f"algo={row}", "seed=0"]) for row in ("a", "b")]
TABLE = Table("x", "tiny", ABOUT, [Column("c", "C", "")], [Row("a"), Row("b")], JOBS)


def test_a_folder_of_the_same_sweep_keeps_its_jobs(tmp_path: Path) -> None:
    assert joined(tmp_path / "none", TABLE) == TABLE
    TABLE.save(tmp_path)
    assert joined(tmp_path, TABLE) == TABLE
    more = Job("a-s1", "a", "a-s1", ["algo=a", "seed=1"])
    assert joined(tmp_path, replace(TABLE, jobs=[more])).jobs == [JOBS[0], more, JOBS[1]]


def test_what_a_kill_or_a_lock_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".sweep.json.x1").touch()
    assert joined(tmp_path, TABLE) == TABLE


def test_differing_jobs_are_named(tmp_path: Path) -> None:
    TABLE.save(tmp_path)
    other = replace(JOBS[1], overrides=["algo=c", "seed=0", "x=1"])
    with pytest.raises(PlanError) as refused:
        joined(tmp_path, replace(TABLE, jobs=[JOBS[0], other]))
    (problem,) = refused.value.problems
    assert "b-s0 had algo=b; now it has algo=c x=1" in problem.message
    assert problem.remedy == f"sweep_dir={tmp_path}_2"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("sweep.json", "{}", "is damaged"),
        ("weights.bin", "", "is no sweep: it holds weights.bin"),
    ],
)
def test_a_folder_of_something_else(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PlanError, match=said):
        joined(tmp_path, TABLE)


def test_a_folder_of_another_sweep(tmp_path: Path) -> None:
    replace(TABLE, size="full").save(tmp_path)
    with pytest.raises(PlanError, match="holds the sweep x, size full"):
        joined(tmp_path, TABLE)


def test_one_holds_a_folder(tmp_path: Path) -> None:
    with (
        held(tmp_path / "s"),
        pytest.raises(PlanError, match="another command"),
        held(tmp_path / "s"),
    ):
        pass
    with held(tmp_path / "s"):
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
