"""A sweep in words."""

import json
from pathlib import Path

from rlfactory.request import planned
from rlfactory.sweep.folder import job_output
from rlfactory.sweep.jobs import columns_of, jobs_of, rows_of
from rlfactory.sweep.show import outcome_lines, plan_lines
from rlfactory.sweep.source import read_sheet
from rlfactory.sweep.table import Table


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
    plan = planned("iterations=6")
    plans = dict.fromkeys((job.name for job in table.jobs), plan)
    lines = [*plan_lines(found, table, table.jobs, plans, tmp_path)]  # type: ignore[arg-type]
    assert lines[0] == "Small: A paper, Table 1"
    assert "  jobs       3: 1 done, 2 new" in lines
    (budget,) = [line for line in lines if line.startswith("  budget")]
    assert f"{3 * 6 * plan.evaluations:,.0f} evaluations of the network; 18 iterations" in budget
    assert budget.endswith("1:30 a job so far, 3:00 of jobs left")
    assert "GPU-hours" not in budget, "those are the full form's"
    assert lines[-3].startswith("done    rlfactory ")


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
