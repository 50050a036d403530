"""What is shown while a sweep runs."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rlfactory.config.overrides import plan_from_words
from rlfactory.sweep import display as board_module
from rlfactory.sweep.display import LiveTable, outcome_lines, plan_lines
from rlfactory.sweep.jobs import columns_of, jobs_of, rows_of
from rlfactory.sweep.sweep_file import read_sheet
from rlfactory.sweep.sweep_folder import job_output
from rlfactory.sweep.table import Job, Table


def table_of(sheet: Path) -> tuple[Table, object]:
    found = read_sheet(sheet)
    jobs = jobs_of(found, "tiny", [], {}, [0])
    return Table(
        "small", "tiny", found.about, columns_of(found, "tiny"), rows_of(found), jobs
    ), found


def test_the_plan_knows_what_is_done_and_what_that_took(sheet: Path, tmp_path: Path) -> None:
    table, found = table_of(sheet)
    run = tmp_path / "v-grpo-one-s0"
    run.mkdir()
    (run / "STATUS").write_text("done")
    line = {"iteration": 6, "time": 90, "reward/shapes/mean": 1}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    plan = plan_from_words("iterations=6")
    plans = dict.fromkeys((job.name for job in table.jobs), plan)
    lines = [*plan_lines(found, table, table.jobs, plans, tmp_path)]  # type: ignore[arg-type]
    assert lines[0] == "Small: A paper, Table 1"
    assert "  jobs       3: 1 done, 2 new" in lines
    (budget,) = [line for line in lines if line.startswith("  budget")]
    assert f"{3 * 6 * plan.evaluations:,.0f} forward passes; 18 iterations" in budget
    assert budget.endswith("1:30 a job so far, 3:00 of jobs left")
    assert "GPU-hours" not in budget, "those are the full form's"
    assert lines[-3].startswith("done    rlfactory ")


def test_a_table_of_ones_own_has_a_title_alone(sheet: Path, tmp_path: Path) -> None:
    text = sheet.read_text()
    (about,) = [line for line in text.splitlines() if line.startswith("about:")]
    sheet.write_text(text.replace(about, "about: {title: Small}"))
    table, found = table_of(sheet)
    lines = [*plan_lines(found, table, table.jobs, {}, tmp_path)]  # type: ignore[arg-type]
    assert lines[0] == "Small"
    assert not any(line.strip().startswith(("ran here", "tolerance")) for line in lines)


def test_what_became_of_each_and_why(sheet: Path, tmp_path: Path) -> None:
    table, _ = table_of(sheet)
    first, second, third = table.jobs
    output = job_output(tmp_path, first)
    output.parent.mkdir()
    output.write_text("error: no such thing\n")
    states = {first.name: "failed", second.name: "stopped", third.name: "blocked"}
    (tmp_path / second.folder).mkdir()
    (tmp_path / second.folder / "STATUS").write_text("preempted")
    lines = "\n".join(outcome_lines(table.jobs, tmp_path, states, "shapes")).splitlines()
    assert [line.split()[1] for line in lines[:3]] == ["failed", "interrupted", "blocked"]
    assert "v-grpo-one-s0 failed:" in lines
    assert "  error: no such thing" in lines
    assert lines[-1] == f"{third.name} begins with the weights of {second.name}, which is not done"


def begun(tmp_path: Path, count: int = 3) -> tuple[LiveTable, io.StringIO]:
    jobs = [Job(f"r-s{i}", "r", f"r-s{i}", [], {"seed": i}) for i in range(count)]
    run = tmp_path / "r-s0"
    run.mkdir()
    (run / "STATUS").write_text("running")
    line = {"iteration": 4, "time": 20.0, "reward/a/mean": 0.25, "reward/b/mean": 0.5}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    stream = io.StringIO()
    return LiveTable(jobs, tmp_path, {"r-s0": 10, "r-s1": 10}, "b", stream), stream


def test_without_a_terminal_each_change_is_a_line(tmp_path: Path) -> None:
    board, stream = begun(tmp_path)
    with board.shown():
        board.change("r-s0", "running")
        board.change("r-s0", "running")
        board.change("r-s2", "blocked")
        board.refresh()
    assert stream.getvalue().splitlines() == [
        "r-s0  running  4/10  0.500  0:30 left",
        "r-s2  blocked",
    ]


def test_once_in_a_while_it_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, stream = begun(tmp_path)
    board.change("r-s0", "running")
    monkeypatch.setattr(board_module, "EVERY", 0.0)
    board.refresh()
    assert len(stream.getvalue().splitlines()) == 2


def rendered(board: LiveTable) -> list[str]:
    console = Console(file=io.StringIO(), width=100)
    console.print(board.table())
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_the_table_has_a_row_a_job(tmp_path: Path) -> None:
    board, _ = begun(tmp_path)
    board.change("r-s0", "running")
    assert rendered(board) == [
        "job seed status iteration b left",
        "r-s0 0 running 4/10 0.500 0:30 left",
        "r-s1 1 waiting",
        "r-s2 2 waiting",
    ]


def test_of_many_jobs_those_that_run_are_in_view(tmp_path: Path) -> None:
    board, _ = begun(tmp_path, 200)
    board.change("r-s150", "running")
    lines = rendered(board)
    assert any(line.startswith("r-s150 ") for line in lines)
    assert len(lines) < 60
