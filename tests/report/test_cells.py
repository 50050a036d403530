"""Scores by category of prompts: each row's mean over seeds, before and after training."""

from pathlib import Path

import numpy as np
import pytest

from rlfactory.report.cells import categories, scores_by_category
from rlfactory.report.group import Group, Member
from rlfactory.report.read import RunRecord
from rlfactory.report.report import Report
from rlfactory.report.table import category_tables
from rlfactory.sweep.table import Column

COLUMNS = [
    Column("before", "shapes before", "before/shapes", "neither"),
    Column("shapes", "shapes", "eval/shapes", digits=2),
    Column("strict", "strict", "eval/strict"),
    Column("signs/ocr", "signs/ocr", "eval/signs/ocr", scale=2.0, digits=1),
]


def run(seed: int, **last: float) -> RunRecord:
    """A run whose metrics are 0 before training, by names with `__` for slashes."""
    series = {
        f"eval/{name.replace('__', '/')}": (np.array([0.0, 4.0]), np.array([0.0, value]))
        for name, value in last.items()
    }
    return RunRecord(Path(f"s{seed}"), "done", {"seed": seed}, series)


RUNS = [
    run(
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


def group(name: str = "NFT", *, untrained: bool = False) -> Group:
    members = [Member(r.path, r, "done") for r in RUNS]
    return Group(name, members, untrained=untrained)


def tables(*groups: Group) -> dict[str, list[list[str]]]:
    found = scores_by_category(groups, COLUMNS)
    report = Report("", None, [], [], [], [], [], {}, [], by_category=found)
    return {title: [t.heads, *t.lines] for title, t in category_tables(report).items()}


def test_what_is_no_category_is_left_out() -> None:
    assert categories("shapes", RUNS) == ["counting", "position"]
    assert categories("signs/ocr", RUNS) == ["short"]
    assert categories("signs", RUNS) == []


def test_the_first_score_of_each_prompt_set_has_a_table() -> None:
    first, second = tables(group()).items()
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
    lines = tables(group("base", untrained=True), group())["shapes by category of prompts"]
    assert [line[0] for line in lines[1:]] == ["base", "NFT"]
    assert lines[1][1] == "0.00 ± 0.00"


def test_rows_without_categories_are_left_out() -> None:
    assert "none" not in str(tables(group(), Group("none", [])))


@pytest.mark.parametrize("columns", [[], COLUMNS[:1], [Column("kl", "KL", "last/kl/reference")]])
def test_without_categories_there_is_no_table(columns: list[Column]) -> None:
    assert scores_by_category([group()], columns) == []
