import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlfactory.report.build_report import (
    INTERVAL,
    build_report,
    categories,
    category_tables,
    caveats,
    comparison_table,
)
from rlfactory.report.read import RunRecord, read_run
from rlfactory.report.report import Cell, Report
from rlfactory.report.run_groups import Group, groups_of_table
from rlfactory.report.statistics import interquartile_mean, mean_interval
from rlfactory.sweep.table import Column, Job, Row, Table

COLUMN = Column("a", "A", "eval/a")


def member(name: str, state: str, fault: str = "") -> RunRecord:
    return RunRecord(Path(name), state, {}, fault=fault)


def test_a_report_of_what_is_done_says_what_an_interval_is() -> None:
    group = Group("row", [member("r", "done")])
    assert caveats([group], [COLUMN], [{"a": [1]}]) == [INTERVAL]


def test_what_is_left_out_is_named_once() -> None:
    members = [member("r", "done"), member("x", "damaged", "torn"), member("y", "running")]
    groups = [Group("row", members), Group("base", members, untrained=True)]
    notes = caveats(groups, [COLUMN], [{"a": [1]}, {"a": []}])
    assert notes[1:] == [
        "Left out because it is damaged: x (torn).",
        "Not counted because they are not done: y (running).",
    ]


def test_of_many_that_are_not_done_some_are_named() -> None:
    group = Group("row", [member(f"r{i}", "failed") for i in range(9)])
    assert caveats([group], [], [{}])[1].endswith("r4 (failed) and 4 more.")


def test_a_number_that_a_done_run_lacks_is_told() -> None:
    group = Group("row", [member("r", "done"), member("q", "done")])
    columns = [COLUMN, Column("b", "B", ""), Column("c", "C", "eval/c")]
    notes = caveats([group], columns, [{"a": [1], "b": [], "c": []}])
    assert notes[1] == "row: not all runs measured A 1 of 2."


def test_runs_of_one_seed_are_no_independent_runs() -> None:
    members = [RunRecord(Path(n), "done", {"seed": s}) for n, s in ("a0", "b0", "c1")]
    groups = [Group("row", members), Group("base", members, untrained=True)]
    notes = caveats(groups, [], [{}, {}])
    assert notes[1:] == ["row: 2 runs have seed 0: intervals are too narrow."]


Make = Callable[..., Path]
UP, DOWN = Column("up", "Up", "eval/up", "higher"), Column("down", "Down", "eval/down", "lower")
SAYS_NOTHING = Column("n", "N", "iterations", "neither")


def report_of(folder: Path) -> Report:
    table = Table.load(folder)
    groups = groups_of_table(table, folder)
    return build_report("made", table.about, table.columns, groups)


def test_a_sweep_becomes_its_table(tmp_path: Path, filled_sweep: Make) -> None:
    report = report_of(filled_sweep(tmp_path / "s"))
    nft, grpo, flux = report.rows
    assert nft.cells["shapes"].values == pytest.approx([0.8, 0.9])
    assert (nft.cells["shapes"].paper, nft.steps, nft.nfe, nft.note) == (0.9, 4, 4000.0, "fast")
    assert (nft.status, flux.status) == ("2 done", "published")
    assert flux.cells["shapes"].n == 0
    assert flux.cells["shapes"].paper == 0.5
    tables = {section.title: section.table for section in report.tables}
    assert tables["What differs"].lines == [["NFT", "nft"], ["GRPO", "grpo"], ["FLUX.1", "–"]]
    assert [line[:2] for line in tables["Against the first row"].lines] == [["GRPO", "NFT"]]
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
    assert (base.steps, base.nfe) == (None, None)


def test_a_cell_has_its_intervals_as_far_as_its_runs_allow() -> None:
    assert Cell(0.5).mean is None
    assert Cell(0.5).iqm is None
    one, two, four = Cell(None, [1.0]), Cell(None, [1.0, 2.0]), Cell(None, [1.0, 2.0, 3.0, 9.0])
    assert (one.mean, one.interval, one.iqm_interval) == (1.0, None, None)
    assert two.interval == mean_interval([1.0, 2.0])
    assert two.iqm_interval is None
    assert four.iqm == interquartile_mean([1.0, 2.0, 3.0, 9.0]) == 2.5
    assert four.iqm_interval is not None


def compared(columns: list[Column], rows: dict[str, Any]) -> list[list[str]]:
    table = comparison_table(columns, rows)
    assert table is not None
    return table.lines


@pytest.mark.parametrize(
    ("better", "values", "gains"),
    [
        ("higher", [0.1, 0.2, 0.15], True),
        ("lower", [-0.1, -0.2, -0.15], True),
        ("higher", [-0.1, -0.2, -0.15], False),
        ("higher", [-0.1, 0.2, 0.0], False),
        ("higher", [0.1, 0.1], False),
    ],
)
def test_a_difference_stands_out_where_the_row_gained(
    better: Any, values: list[float], gains: bool
) -> None:
    rows = {
        "base": {"a": [(seed, 0.0) for seed in range(len(values))]},
        "ours": {"a": [*enumerate(values)]},
    }
    table = comparison_table([Column("a", "A", "eval/a", better)], rows)
    assert table is not None
    assert table.strong == ({(0, 4)} if gains else set())


def test_a_row_is_held_against_the_first_that_was_run_by_seed() -> None:
    rows = {
        "paper only": {"up": []},
        "base": {"up": [(0, 1.0), (1, 5.0), (2, 9.0)]},
        "ours": {"up": [(2, 10.0), (1, 6.0), (7, 99.0)]},
    }
    (line,) = compared([UP], rows)
    ours = ["2", "+1.000", "+1.000 … +1.000"]
    assert line[:-1] == ["ours", "base", "Up", *ours, f"{(3 + 3 + 2) / 9:.2f}"]
    assert "…" in line[-1]


def test_lower_is_better_where_the_column_says_so() -> None:
    seeds = range(3)
    rows = {
        "base": {"down": [(i, 1.0) for i in seeds]},
        "ours": {"down": [(i, 0.5) for i in seeds]},
    }
    (line,) = compared([DOWN], rows)
    assert line[6] == "1.00"


def test_two_runs_have_no_probability_of_improvement() -> None:
    rows = {"base": {"up": [(0, 1.0), (1, 2.0)]}, "ours": {"up": [(0, 3.0), (1, 4.0)]}}
    (line,) = compared([UP], rows)
    assert line[3:] == ["2", "+2.000", "+2.000 … +2.000", "–", "–"]


def test_one_pair_is_no_comparison() -> None:
    rows = {"base": {"up": [(0, 1.0), (1, 2.0)]}, "ours": {"up": [(0, 3.0), (5, 4.0)]}}
    assert comparison_table([UP], rows) is None


def test_several_columns_are_also_judged_together() -> None:
    rows = {
        name: {column: [(seed, value) for seed in range(3)] for column in ("up", "down", "n")}
        for name, value in (("base", 1.0), ("ours", 2.0))
    }
    found = compared([UP, DOWN, SAYS_NOTHING], rows)
    chances = [["Up", "1.00"], ["Down", "0.00"], ["all together", "0.50"]]
    assert [[line[2], line[6]] for line in found] == chances


def test_rows_without_numbers_are_held_against_nothing() -> None:
    assert comparison_table([UP], {"a": {"up": []}, "b": {"up": []}}) is None
    assert comparison_table([UP], {"a": {"up": [(0, 1.0)]}, "b": {"up": []}}) is None


CATEGORY_COLUMNS = [
    Column("before", "shapes before", "before/shapes", "neither"),
    Column("shapes", "shapes", "eval/shapes", digits=2),
    Column("strict", "strict", "eval/strict"),
    Column("signs/ocr", "signs/ocr", "eval/signs/ocr", scale=2.0, digits=1),
]


def seed_run(seed: int, **last: float) -> RunRecord:
    """A run whose metrics are 0 before training, by names with `__` for slashes."""
    series = {
        f"eval/{name.replace('__', '/')}": (np.array([0.0, 4.0]), np.array([0.0, value]))
        for name, value in last.items()
    }
    return RunRecord(Path(f"s{seed}"), "done", {"seed": seed}, series)


RUNS = [
    seed_run(
        seed,
        shapes__mean=0.5,
        shapes__counting=0.25 + 0.5 * seed,
        shapes__position=0.5,
        shapes__diversity=0.1,
        shapes__ocr__mean=0.1,
        strict__mean=0.1,
        strict__counting=0.1,
        signs__ocr__mean=0.3,
        signs__ocr__short=0.4,
    )
    for seed in (0, 1)
]


def category_group(name: str = "NFT", *, untrained: bool = False) -> Group:
    return Group(name, RUNS, untrained=untrained)


def tables(*groups: Group) -> dict[str, list[list[str]]]:
    found = category_tables(groups, CATEGORY_COLUMNS)
    return {title: [t.heads, *t.lines] for title, t in found.items()}


def test_what_is_no_category_is_left_out() -> None:
    assert categories("shapes", RUNS) == ["counting", "position"]
    assert categories("signs/ocr", RUNS) == ["short"]
    assert categories("signs", RUNS) == []


def test_the_first_score_of_each_prompt_set_has_a_table() -> None:
    first, second = tables(category_group()).items()
    assert first == (
        "shapes by category of prompts",
        [
            ["row", "counting", "position", "all"],
            ["NFT, before", "0.00 ± 0.00", "0.00 ± 0.00", "0.00 ± 0.00"],
            ["NFT", "0.50 ± 3.18", "0.50 ± 0.00", "0.50 ± 0.00"],
        ],
    )
    assert second[0] == "signs/ocr by category of prompts"
    assert second[1][2] == ["NFT", "0.8 ± 0.0", "0.6 ± 0.0"]


def test_a_row_before_training_says_it_once() -> None:
    lines = tables(category_group("base", untrained=True), category_group())[
        "shapes by category of prompts"
    ]
    assert [line[0] for line in lines[1:]] == ["base", "NFT"]
    assert lines[1][1] == "0.00 ± 0.00"


def test_rows_without_categories_are_left_out() -> None:
    assert "none" not in str(tables(category_group(), Group("none", [])))


@pytest.mark.parametrize(
    "columns", [[], CATEGORY_COLUMNS[:1], [Column("kl", "KL", "last/kl/reference")]]
)
def test_without_categories_there_is_no_table(columns: list[Column]) -> None:
    assert category_tables([category_group()], columns) == {}


def run_group(path: Path) -> Group:
    return Group("row", [read_run(path)])


def test_a_row_shows_its_strip_and_its_last_samples(tmp_path: Path, make_run: Make) -> None:
    path = make_run(tmp_path / "a", seed=7, media="images")
    strip, grid = build_report("t", None, [], [run_group(path)]).images
    assert strip.path == path / "samples" / "strip.png"
    assert grid.path == path / "samples" / "eval_000004.png"
    assert grid.caption == "samples after 4 iterations, seed 7"


def test_a_row_shows_what_was_written_before_and_after(tmp_path: Path, make_run: Make) -> None:
    one = run_group(make_run(tmp_path / "a", media="texts"))
    found = build_report("t", None, [], [one]).texts[one.name]
    assert (found[0].prompt, found[0].before.text, found[0].after.text) == (
        "a red circle",
        "a red circle, 0",
        "a red circle, 4",
    )
    assert len(found) == 3
    assert (found[0].before.score, found[0].after.score) == (0.0, 0.4)
    assert math.isnan(found[2].after.score)


def test_a_row_without_samples_shows_none(tmp_path: Path, make_run: Make) -> None:
    plain = run_group(make_run(tmp_path / "a"))
    report = build_report("t", None, [], [plain, Group("paper", [])])
    assert (report.images, report.texts) == ([], {})
