"""Every job of a sweep composed and checked before the first begins."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlfactory.crossings.beginning import other_family
from rlfactory.plan import Plan
from rlfactory.problems import PlanError, Problem, key_of
from rlfactory.request import planned, prepare
from rlfactory.sweep.source import Words
from rlfactory.sweep.table import Job

SHOWN = 3


def plans_of(jobs: Sequence[Job]) -> dict[str, Plan]:
    """Each job's plan by its name; a PlanError holds the problems of all, each with its jobs.

    Jobs that differ in nothing but the seed are composed once.
    """
    plans: dict[tuple[str, ...], Plan | None] = {}
    found: dict[Problem, list[str]] = {}
    wrong: dict[tuple[str, ...], list[Problem]] = {}
    for job in jobs:
        key = _without_seed(job.overrides)
        if key not in plans:
            plans[key], wrong[key] = _planned(job.overrides)
        for problem in wrong[key]:
            found.setdefault(problem, []).append(job.name)
    of = {job.name: plan for job in jobs if (plan := plans[_without_seed(job.overrides)])}
    for problem, names in _successions(jobs, of).items():
        found.setdefault(problem, []).extend(names)
    if found:
        raise PlanError([_placed(p, names, len(jobs)) for p, names in found.items()])
    return of


def _without_seed(words: Words) -> tuple[str, ...]:
    return tuple(word for word in words if key_of(word) != "seed")


def _planned(words: Words) -> tuple[Plan | None, list[Problem]]:
    try:
        return planned(*prepare(words)), []
    except PlanError as error:
        return None, error.problems


def _successions(jobs: Sequence[Job], plans: Mapping[str, Plan]) -> dict[Problem, list[str]]:
    """Jobs that begin with weights that are none of theirs."""
    found: dict[Problem, list[str]] = {}
    for job in jobs:
        former, plan = plans.get(job.after or ""), plans.get(job.name)
        if former is None or plan is None:
            continue
        if fault := other_family(former.config["model"], plan.config["model"]):
            found.setdefault(Problem("begin_from", f"{job.after} {fault}"), []).append(job.name)
    return found


def _placed(problem: Problem, names: Sequence[str], of: int) -> Problem:
    """A problem with the jobs that have it."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    where = f"every job of the {of}" if len(names) == of > 1 else ", ".join(names[:SHOWN]) + more
    return replace(problem, message=f"{problem.message} (in {where})")
