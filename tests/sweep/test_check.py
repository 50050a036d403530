"""All jobs are checked before the first begins."""

from unittest.mock import patch

import pytest

from rlfactory.problems import PlanError
from rlfactory.sweep import check
from rlfactory.sweep.check import plans_of
from rlfactory.sweep.table import Job


def job(name: str, *words: str, after: str | None = None) -> Job:
    return Job(name, "row", name, [*words], {}, after)


def test_each_job_has_its_plan_and_seeds_are_composed_once() -> None:
    jobs = [job("a0", "iterations=3", "seed=0"), job("a1", "iterations=3", "seed=1")]
    with patch.object(check, "planned", wraps=check.planned) as composed:
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
