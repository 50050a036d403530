"""Rows by stages, axes and seeds."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from rlfactory.config.problems import PlanError
from rlfactory.sweep import jobs as module
from rlfactory.sweep.jobs import (
    columns_of,
    first_measured,
    jobs_of,
    last_words,
    plans_of,
    rows_of,
    seeds_of,
    share_stages,
    size_of,
)
from rlfactory.sweep.sweep_file import Line, SweepFile, read_sheet
from rlfactory.sweep.table import Column, Job


@pytest.fixture
def small(sheet: Path) -> SweepFile:
    return read_sheet(sheet)


def test_every_row_that_is_run_has_a_job_a_seed(small: SweepFile) -> None:
    jobs = jobs_of(small, "tiny", [], {}, [0, 1])
    assert [job.name for job in jobs] == [
        *("v-grpo-one-s0", "v-grpo-one-s1"),
        *("two-stages-stage-1-s0", "two-stages-stage-2-s0"),
        *("two-stages-stage-1-s1", "two-stages-stage-2-s1"),
    ]
    first, staged = jobs[0], jobs[3]
    assert first.overrides == [
        *("model=tiny_sd3", "iterations=6", "algo=vgrpo", "optimizer.lr=1e-3", "seed=0"),
    ]
    assert (first.axes, first.after, first.folder) == ({"seed": 0}, None, first.name)
    assert staged.overrides == ["model=tiny_sd3", "algo=vgrpo", "iterations=8", "seed=0"]
    assert (staged.axes, staged.after) == ({"stage": 2, "seed": 0}, "two-stages-stage-1-s0")


def test_stages_that_rows_share_are_run_once(small: SweepFile) -> None:
    stages = [["algo=nft"], ["algo=awm"], ["algo=vgrpo"]]
    rows = [
        Line("one", stages=stages),
        Line("other end", stages=[*stages[:2], ["algo=ddpo"]]),
        Line("other middle", stages=[stages[0], ["algo=grpo"], stages[2]]),
        Line("further", stages=[*stages, ["algo=sft"]]),
        Line("same", stages=stages),
    ]
    jobs = share_stages(jobs_of(replace(small, rows=rows), "tiny", [], {}, [0]))
    assert {job.name.removesuffix("-s0"): job.after and job.after[:-3] for job in jobs} == {
        "one-stage-1": None,
        "one-stage-2": "one-stage-1",
        "one-stage-3": "one-stage-2",
        "other-end-stage-3": "one-stage-2",
        "other-middle-stage-2": "one-stage-1",
        "other-middle-stage-3": "other-middle-stage-2",
        "further-stage-4": "one-stage-3",
        "same-stage-3": "one-stage-2",
    }


def test_stages_of_other_seeds_are_not_shared(small: SweepFile) -> None:
    jobs = jobs_of(small, "tiny", [], {}, [0, 1])
    assert share_stages(jobs) == jobs


def test_what_is_of_one_size_alone_is_run_in_it_alone(small: SweepFile) -> None:
    only = Line("only", by_size={"tiny": []})
    never = Line("never", overrides=[], by_size={"tiny": None})
    staged = Line("staged", stages={"full": [["algo=nft"], []]})
    sheet = replace(small, rows=[only, never, staged])
    assert [j.name for j in jobs_of(sheet, "tiny", [], {}, [0])] == ["only-s0"]
    full = [j.name for j in jobs_of(sheet, "full", [], {}, [0])]
    assert full == ["never-s0", "staged-stage-1-s0", "staged-stage-2-s0"]


def test_axes_of_all_rows_one_size_one_row_and_the_command_line(small: SweepFile) -> None:
    line = Line("r", overrides=[], axes={"group_size": [4]})
    axes = {"optimizer.lr": ["1e-4"], "tiny": {"optimizer.lr": ["1e-3", 0.5]}, "full": {"a": [1]}}
    sheet = replace(small, rows=[line], axes=axes)
    jobs = jobs_of(sheet, "tiny", [], {}, [3])
    assert [j.name for j in jobs] == ["r-lr-1e-3-group-size-4-s3", "r-lr-0.5-group-size-4-s3"]
    assert jobs[1].axes == {"optimizer.lr": 0.5, "group_size": 4, "seed": 3}
    assert "optimizer.lr=0.5" in jobs[1].overrides
    (typed,) = jobs_of(sheet, "tiny", ["optimizer.lr=7"], {}, [3])
    assert typed.name == "r-group-size-4-s3"
    assert typed.overrides[-1] == "optimizer.lr=7"
    several = jobs_of(sheet, "tiny", [], {"optimizer.lr": ["1", "2"]}, [3])
    assert [j.axes["optimizer.lr"] for j in several] == ["1", "2"]


@pytest.mark.parametrize("values", [[], 3, None])
def test_an_axis_has_values(small: SweepFile, values: object) -> None:
    with pytest.raises(PlanError, match=r"axes.a: is .*; allowed is a list of values"):
        jobs_of(replace(small, axes={"a": values}), "tiny", [], {}, [0])


def test_two_jobs_of_one_name(small: SweepFile) -> None:
    rows = [Line("A b", overrides=[]), Line("a  B", overrides=[])]
    with pytest.raises(PlanError, match="two jobs are named a-b-s0"):
        jobs_of(replace(small, rows=rows), "tiny", [], {}, [0])


def test_sizes_and_seeds(small: SweepFile) -> None:
    assert size_of(small, "tiny") == "tiny"
    with pytest.raises(PlanError, match="there is no size tinny; known are full, tiny") as refused:
        size_of(small, "tinny")
    assert refused.value.problems[0].fix == "size=tiny"
    assert seeds_of(small, "tiny") == [0, 1]
    assert seeds_of(replace(small, seeds=[4]), "tiny") == [4]
    for seeds in ([], {"full": [0]}):
        with pytest.raises(PlanError, match="seeds: is empty for size tiny"):
            seeds_of(replace(small, seeds=seeds), "tiny")


def test_columns_measure_what_their_size_has(small: SweepFile) -> None:
    shapes, steps = columns_of(small, "tiny")
    assert (shapes.measure, shapes.label, shapes.digits) == ("eval/shapes", "Shapes", 2)
    assert (steps.measure, steps.label, steps.better) == ("iterations", "steps", "lower")
    assert columns_of(small, "full")[1].measure == ""
    with pytest.raises(PlanError, match=r"columns.a.lable: there is no such key"):
        columns_of(replace(small, columns={"a": {"lable": "x"}}), "tiny")
    with pytest.raises(PlanError, match=r"columns.a.better: is 'more'; allowed is higher"):
        columns_of(replace(small, columns={"a": {"better": "more"}}), "tiny")


def test_a_stand_in_is_a_column_of_its_own(small: SweepFile) -> None:
    stand_in = {"label": "file size", "measure": "eval/jpeg_kb", "better": "lower"}
    ocr = {"label": "OCR", "full": "eval/ocr", "scale": 0.5, "tiny": stand_in}
    sheet = replace(small, columns={"ocr": ocr, **small.columns})
    assert columns_of(sheet, "full")[0].measure == "eval/ocr"
    own = columns_of(sheet, "tiny")[-1]
    assert own == Column("ocr_stand_in", "file size", "eval/jpeg_kb", "lower")
    assert "ocr" not in [column.name for column in columns_of(sheet, "tiny")]  # nothing is claimed
    claiming = replace(sheet, rows=[replace(sheet.rows[0], claimed={"ocr": 0.9})])
    first, *_, last = columns_of(claiming, "tiny")
    assert (first.name, first.label, first.measure) == ("ocr", "OCR", "")
    assert last == own
    planned = Column("nfe", "NFE", "plan/all", "lower")
    assert first_measured([first, planned, last]) == last
    assert first_measured([planned, first]) == planned
    for wrong, message in (
        ({"label": "x"}, r"columns.ocr.tiny.measure: is missing"),
        ({"measure": "eval/a"}, r"columns.ocr.tiny.label: is missing"),
        ({"label": "x", "measure": "eval/a", "scal": 2.0}, r"columns.ocr.tiny.scal: there is no"),
    ):
        with pytest.raises(PlanError, match=message):
            columns_of(replace(small, columns={"ocr": {"tiny": wrong}}), "tiny")


def test_rows_keep_what_was_claimed(small: SweepFile) -> None:
    rows = rows_of(small)
    assert (rows[0].before, rows[1].claimed, rows[1].note) == (
        *("V-GRPO, one", {"shapes": 0.97}, "600 steps"),
    )


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["a=1", "b=2", "a=3"], ["b=2", "a=3"]),
        (["+a=1", "a=2"], ["+a=2"]),
        (["+a=1", "++a=2"], ["++a=2"]),
        (["a=1", "~a"], ["~a"]),
        (["reward=x", "reward.k=1"], ["reward=x", "reward.k=1"]),
    ],
)
def test_the_last_word_of_a_key_counts(words: list[str], kept: list[str]) -> None:
    assert last_words(words) == kept


def job(name: str, *words: str, after: str | None = None) -> Job:
    return Job(name, "row", name, [*words], {}, after)


def test_each_job_has_its_plan_and_seeds_are_composed_once() -> None:
    jobs = [job("a0", "iterations=3", "seed=0"), job("a1", "iterations=3", "seed=1")]
    with patch.object(module, "plan_from_words", wraps=module.plan_from_words) as composed:
        plans = plans_of(jobs)
    assert {name: plan.config["iterations"] for name, plan in plans.items()} == {"a0": 3, "a1": 3}
    assert composed.call_count == 1


def test_all_problems_at_once_each_with_its_jobs() -> None:
    jobs = [job(f"a{i}", "optimzer.lr=1", f"seed={i}") for i in range(5)]
    jobs += [job("b", "algo=nft", "group_size=0", "optimzer.lr=1")]
    with pytest.raises(PlanError) as refused:
        plans_of([*jobs[:4], jobs[-1]])
    first, second = refused.value.problems
    assert first.key == "optimzer.lr"
    assert "Did you mean optimizer.lr?" in first.message
    assert first.message.endswith("(in every job of the 5)")
    assert second.key == "group_size"
    assert second.message.endswith("(in b)")


def test_many_jobs_are_counted() -> None:
    jobs = [job(f"a{i}", "iterations=0", f"seed={i}") for i in range(5)]
    with pytest.raises(PlanError, match=r"\(in a0, a1, a2 and 2 more\)"):
        plans_of([*jobs, job("b")])


def test_stages_are_of_one_model() -> None:
    first = job("one", "model=tiny_sd3")
    with pytest.raises(PlanError, match=r"one trained a model whose _target_ .*\(in two\)"):
        plans_of([first, job("two", "model=gpt2", "model.path=zoo:tiny_gpt2", after="one")])
    assert len(plans_of([first, job("two", "optimizer.lr=1e-5", after="one")])) == 2
