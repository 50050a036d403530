"""The jobs of a multirun, before the first one begins."""

from pathlib import Path

import pytest

from rlfactory.cli.multirun import (
    LONGEST_NAME,
    job_names,
    job_words,
    planned_jobs,
    swept_by_files,
)
from rlfactory.cli.suggestions import working_command
from rlfactory.config.problems import PlanError


def test_jobs_are_every_combination_and_names_have_what_varies() -> None:
    jobs = job_words(["seed=1,2", "iterations=3", "algo=grpo,nft"])
    assert jobs[0] == ("seed=1", "iterations=3", "algo=grpo")
    assert job_names(jobs) == [
        "seed=1,algo=grpo",
        "seed=1,algo=nft",
        "seed=2,algo=grpo",
        "seed=2,algo=nft",
    ]


def test_one_job_alone_is_named_by_all_that_was_typed() -> None:
    assert job_names([("seed=2",)]) == ["seed=2"]
    assert job_names([()]) == ["default"]


def test_names_that_would_be_one_folder_or_none_are_numbered() -> None:
    assert job_names([("a=x/y",), ("a=x y",)]) == ["000_a=x_y", "001_a=x_y"]
    long = job_names([(f"a={'x' * 200}1",), (f"a={'x' * 200}2",)])
    assert [name[:6] for name in long] == ["000_a=", "001_a="]
    assert {len(name) for name in long} == {LONGEST_NAME}


def test_ranges_and_globs_are_swept() -> None:
    assert job_words(["seed=range(0,3)"]) == [("seed=0",), ("seed=1",), ("seed=2",)]
    assert ("algo=grpo",) in job_words(["algo=glob(gr*)"])


def test_an_interval_needs_a_search() -> None:
    with pytest.raises(PlanError, match=r"optimizer.lr: is an interval.*rlfactory sweep"):
        planned_jobs(["optimizer.lr=interval(0.1,0.2)"])


@pytest.mark.parametrize(
    ("words", "key", "where"),
    [
        (["seed=1,2", "iterations=0"], "iterations", " (in every job of the 2)"),
        (["algo=grpo,nft", "algo.clip_range=1e-4"], "algo.clip_range", " (in algo=nft)"),
        (["group_size=0,4", "seed=1,2"], "group_size", " (in group_size=0,seed=1, group_size=0,"),
    ],
)
def test_a_problem_of_some_jobs_names_them(words: list[str], key: str, where: str) -> None:
    with pytest.raises(PlanError) as refused:
        planned_jobs(words)
    (problem,) = refused.value.problems
    assert problem.key == key
    assert where in problem.message
    assert not problem.fix, "it would change the jobs that are well"


def test_a_fix_that_all_jobs_have_is_kept() -> None:
    with pytest.raises(PlanError) as refused:
        planned_jobs(["num_generations=4", "seed=1,2"])
    assert [p.instead for p in refused.value.problems] == [("group_size=4",)]
    with pytest.raises(PlanError) as refused:
        planned_jobs(["lr=1e-4,2e-4", "seed=1,2"])
    assert [p.instead for p in refused.value.problems] == [None, None]


def test_a_suggestion_keeps_the_multirun() -> None:
    words = ["check", "-m", "seed=1,2", "lr=1e-4"]
    with pytest.raises(PlanError) as refused:
        planned_jobs(words[2:])
    fixed = "rlfactory check -m seed=1,2 optimizer.lr=1e-4"
    assert working_command(refused.value.problems, words) == fixed
    with pytest.raises(PlanError) as refused:
        planned_jobs(["algo=grpo,ppo", "lr=1e-4"])
    assert working_command(refused.value.problems, ["-m", "algo=grpo,ppo", "lr=1e-4"]) is None


def test_a_file_of_ones_own_sweeps_but_over_what_is_typed(tmp_path: Path) -> None:
    """Its jobs ended in an IndexError: only what was typed was planned."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "search.yaml").write_text(
        "# @package _global_\nhydra: {sweeper: {params: {seed: '0,1', algo: 'nft,grpo'}}}\n"
    )
    words = [f"hydra.searchpath=['{tmp_path}']", "experiment=search", "run_dir=here"]
    assert [*planned_jobs(words)] == [
        *("seed=0,algo=nft", "seed=0,algo=grpo", "seed=1,algo=nft", "seed=1,algo=grpo")
    ]
    assert swept_by_files([*words, "seed=4"]) == ["algo=nft,grpo"]
    plans = planned_jobs([*words, "seed=4"])
    assert [plan.run_dir for plan in plans.values()] == [
        Path("here/algo=nft"),
        Path("here/algo=grpo"),
    ]
