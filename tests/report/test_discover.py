from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.problems import PlanError
from rlfactory.report.discover import discover, is_run

Make = Callable[..., Path]


def test_runs_and_sweeps_are_found_below_a_folder(
    tmp_path: Path, make_run: Make, filled_sweep: Make
) -> None:
    sweep = filled_sweep(tmp_path / "x" / "sweep")
    runs = [make_run(tmp_path / name) for name in ("b", "a/deep")]
    found = discover([tmp_path])
    assert found.sweeps == [sweep]
    assert found.runs == [runs[1], runs[0]]


def test_what_is_named_twice_counts_once(tmp_path: Path, make_run: Make) -> None:
    run = make_run(tmp_path / "a")
    assert discover([run, tmp_path, run / ".." / "a"]).runs == [run / ".." / "a"]


def test_a_hidden_folder_holds_nothing(tmp_path: Path, make_run: Make) -> None:
    make_run(tmp_path / ".trash" / "a")
    with pytest.raises(PlanError, match="holds none"):
        discover([tmp_path])


def test_a_name_that_is_too_long_is_no_folder() -> None:
    with pytest.raises(PlanError) as refused:
        discover([Path("n" * 300)])
    assert "there is no such folder" in refused.value.problems[0].message
    assert not is_run(Path("n" * 300))


def test_each_path_that_is_nothing_is_told(tmp_path: Path, make_run: Make) -> None:
    make_run(tmp_path / "good_run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    names = ["good_rum", "empty", "file", "good_run"]
    with pytest.raises(PlanError) as caught:
        discover([tmp_path / name for name in names])
    messages = [problem.message for problem in caught.value.problems]
    assert len(messages) == 3
    assert messages[0].endswith(f"Did you mean {tmp_path / 'good_run'}?")
    assert messages[1] == "is empty"
    assert "is a file" in messages[2]
