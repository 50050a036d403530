from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.report.assemble import assemble, cell
from rlfactory.report.group import groups_of_table
from rlfactory.report.read import read_run
from rlfactory.report.report import Report
from rlfactory.report.statistics import interquartile_mean, mean_interval
from rlfactory.sweep.table import Column, Job, Row, Table

Make = Callable[..., Path]


def report_of(folder: Path, best: bool = False) -> Report:
    table = Table.load(folder)
    groups = groups_of_table(table, folder, read_run)
    return assemble("made", table.about, table.columns, groups, best=best)


def test_a_sweep_becomes_its_table(tmp_path: Path, filled_sweep: Make) -> None:
    report = report_of(filled_sweep(tmp_path / "s"))
    nft, grpo, flux = report.rows
    assert nft.cells["shapes"].values == pytest.approx([0.8, 0.9])
    assert (nft.cells["shapes"].paper, nft.steps, nft.nfe, nft.note) == (0.9, 4, 4000.0, "fast")
    assert (nft.status, flux.status) == ("2 done", "published")
    assert flux.cells["shapes"].n == 0
    assert flux.cells["shapes"].paper == 0.5
    assert report.differences == {"algo": ["nft", "grpo", "–"]}
    assert grpo.differs == {"algo": "grpo"}
    assert [(c.row, c.other) for c in report.comparisons] == [("GRPO", "NFT")]
    assert {c.row for c in report.curves} == {"NFT", "GRPO"}


def test_ours_is_scaled_and_the_papers_is_not(
    tmp_path: Path, make_sweep: Make, make_run: Make
) -> None:
    columns = [Column("shapes", "Shapes", "eval/shapes", scale=100.0)]
    make_run(make_sweep(tmp_path / "s", columns=columns) / "nft-s0", after=0.8)
    cell = report_of(tmp_path / "s").rows[0].cells["shapes"]
    assert (cell.paper, cell.mean) == (0.9, 80.0)


def test_stages_add_up_and_begin_before_the_first(
    tmp_path: Path, make_sweep: Make, make_run: Make
) -> None:
    jobs = [
        Job("a1", "A", "a1", [], {"seed": 0}),
        Job("a2", "A", "a2", [], {"seed": 0}, after="a1"),
    ]
    measures = {"after": "eval/shapes", "before": "before/shapes", "steps": "iterations"}
    columns = [Column(name, name, measure) for name, measure in measures.items()]
    folder = tmp_path / "s"
    rows = [Row("base", before="A"), Row("A")]
    make_sweep(folder, rows=rows, jobs=jobs, columns=columns)
    make_run(folder / "a1", before=0.1, after=0.4)
    make_run(folder / "a2", before=0.4, after=0.9, iterations=6)
    base, own = report_of(folder).rows
    assert {name: cell.mean for name, cell in own.cells.items()} == pytest.approx(
        {"after": 0.9, "before": 0.1, "steps": 10}
    )
    assert (own.steps, own.nfe) == (10, 10000.0)
    assert base.cells["after"].mean == pytest.approx(0.1)
    assert base.cells["steps"].mean is None
    assert (base.steps, base.nfe, base.differs) == (None, None, {})


def test_the_best_evaluation_counts_where_that_is_asked(tmp_path: Path, filled_sweep: Make) -> None:
    folder = filled_sweep(tmp_path / "s")
    with (folder / "nft-s0" / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 5, "time": 9.0, "eval/shapes/mean": 0.0}\n')
    assert report_of(folder).rows[0].cells["shapes"].values[0] == 0.0
    found = report_of(folder, best=True)
    assert found.rows[0].cells["shapes"].values[0] == pytest.approx(0.8)
    assert any("flatters" in note for note in found.notes)


def test_a_cell_has_its_intervals_as_far_as_its_runs_allow() -> None:
    assert cell(0.5, []).mean is None
    one, two, four = cell(None, [1.0]), cell(None, [1.0, 2.0]), cell(None, [1.0, 2.0, 3.0, 9.0])
    assert (one.mean, one.low, one.iqm_low) == (1.0, None, None)
    assert (two.low, two.high) == mean_interval([1.0, 2.0])
    assert two.iqm_low is None
    assert four.iqm == interquartile_mean([1.0, 2.0, 3.0, 9.0]) == 2.5
    assert four.iqm_low is not None
    assert isinstance(four.iqm, float)
