"""Make the jobs of one size from a sweep's file, and compose and check all before one begins."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any, get_type_hints

from rlfactory.config.checks.model_files import incompatible_model
from rlfactory.config.frozen import format_value
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.plan import Plan
from rlfactory.config.problems import PlanError, Problem, override_key, unknown_key, unknown_name
from rlfactory.config.words import normalise_words
from rlfactory.sweep.sweep_file import Line, SweepFile, Words
from rlfactory.sweep.table import Column, Job, Row
from rlfactory.utils.types import describe, matches

Axes = Mapping[str, Sequence[Any]]


def size_of(sheet: SweepFile, size: str) -> str:
    """The size itself; PlanError unless the file has it."""
    if size in sheet.sizes:
        return size
    raise PlanError([unknown_name("size", "size", size, sheet.sizes)])


def seeds_of(sheet: SweepFile, size: str) -> list[int]:
    """The file's seeds for a size."""
    found = sheet.seeds.get(size, []) if isinstance(sheet.seeds, dict) else sheet.seeds
    if not found:
        raise PlanError([Problem("seeds", f"is empty for size {size}", "seed=0")])
    return found


def axes_of(sheet: SweepFile, size: str, line: Line) -> dict[str, list[Any]]:
    """The axes of all rows, with those of one row added, by key."""
    found = {**sheet.axes, **line.axes}
    nested = {k: v for k, v in found.items() if k in sheet.sizes}
    plain = {k: v for k, v in found.items() if k not in nested} | dict(nested.get(size) or {})
    for key, values in plain.items():
        if not isinstance(values, list) or not values:
            raise PlanError([Problem(f"axes.{key}", f"is {values!r}; allowed is a list of values")])
    return plain


def columns_of(sheet: SweepFile, size: str) -> list[Column]:
    """The table's columns, with the measures of this size.

    A stand-in, which another size measures in the place of what was published, is a column of its
    own behind these; the published column stays, without a measure, if a row claims anything there.
    """
    kinds = {k: v for k, v in get_type_hints(Column).items() if k not in ("name", "measure")}
    allowed = kinds | dict.fromkeys(sheet.sizes, str | dict[str, Any])
    claimed = {name for line in sheet.rows for name in line.claimed}
    columns, stand_ins = [], []
    for name, node in sheet.columns.items():
        _require_known(f"columns.{name}", node, allowed)
        plain = {"label": name} | {k: v for k, v in node.items() if k not in sheet.sizes}
        own = node.get(size, "")
        if isinstance(own, str):
            columns.append(Column(name, measure=own, **plain))
            continue
        _require_known(f"columns.{name}.{size}", own, kinds | {"measure": str})
        if missing := [key for key in ("label", "measure") if key not in own]:
            raise PlanError([Problem(f"columns.{name}.{size}.{missing[0]}", "is missing")])
        columns += [Column(name, measure="", **plain)] if name in claimed else []
        stand_ins.append(Column(f"{name}_stand_in", **own))
    return [*columns, *stand_ins]


def first_measured(columns: Sequence[Column]) -> Column:
    """The first column that reads a metric of a run, else the first."""
    kinds = ("eval", "before", "last", "max", "iterations")
    reading = (column for column in columns if column.measure.partition("/")[0] in kinds)
    return next(reading, columns[0])


def _require_known(place: str, node: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """PlanError for the first key that is unknown or has a value of another kind."""
    for key, value in node.items():
        if key not in kinds:
            raise PlanError([unknown_key(f"{place}.{key}", kinds)])
        if not matches(value, kinds[key]):
            allowed = f"is {value!r}; allowed is {describe(kinds[key])}"
            raise PlanError([Problem(f"{place}.{key}", allowed)])


def rows_of(sheet: SweepFile) -> list[Row]:
    """All rows of the table, also those without runs."""
    names = [field.name for field in fields(Row)]
    return [Row(**{name: getattr(line, name) for name in names}) for line in sheet.rows]


def jobs_of(
    sheet: SweepFile, size: str, typed: Words, axes: Axes, seeds: Sequence[int]
) -> list[Job]:
    """All jobs of a size. Overrides `typed` by the user, and their `axes`, replace the file's."""
    jobs = [job for line in sheet.rows for job in _row_jobs(sheet, size, line, typed, axes, seeds)]
    names = [job.name for job in jobs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PlanError([Problem("rows", f"two jobs are named {name}") for name in twice])
    return jobs


def share_stages(jobs: Sequence[Job]) -> list[Job]:
    """Leave out each stage that an earlier row has too; what came after it begins with that one.

    The last stage of a row is never left out: the row's numbers are its own.
    """
    begun_from = {job.after for job in jobs}
    run_as: dict[str, str] = {}
    first: dict[tuple[str | None, ...], str] = {}
    kept = []
    for job in jobs:
        after = job.after and run_as.get(job.after, job.after)
        same = first.setdefault((after, *job.overrides), job.name)
        if same != job.name and job.name in begun_from:
            run_as[job.name] = same
        else:
            kept.append(replace(job, after=after))
    return kept


def stages_of(line: Line, size: str) -> list[Words]:
    """The overrides of each stage of a row, usually one without any; none if it is not run."""
    if size in line.by_size and line.by_size[size] is None:
        return []
    stages = line.stages.get(size) if isinstance(line.stages, dict) else line.stages
    is_run = line.overrides is not None or size in line.by_size
    return stages or ([[]] if is_run else [])


def _row_jobs(
    sheet: SweepFile, size: str, line: Line, typed: Words, axes: Axes, seeds: Sequence[int]
) -> Iterator[Job]:
    if not (stages := stages_of(line, size)):
        return
    row, common = line.name, [*sheet.sizes[size], *(line.overrides or [])]
    common += line.by_size.get(size) or []
    fixed = {override_key(word) for word in typed}
    known = {**axes_of(sheet, size, line), **axes}
    varied = {key: values for key, values in known.items() if key not in fixed}
    for values, seed in product(product(*varied.values()), seeds):
        point, after = dict(zip(varied, values, strict=True)), None
        for number, stage in enumerate(stages, start=1):
            labels = {**point, "stage": number} if len(stages) > 1 else point
            own = [f"{key}={format_value(value)}" for key, value in {**point, "seed": seed}.items()]
            name = job_name(row, labels, seed)
            words = last_words([*common, *stage, *own, *typed])
            yield Job(name, row, name, words, {**labels, "seed": seed}, after)
            after = name


def job_name(row: str, axes: Mapping[str, Any], seed: int) -> str:
    """The name of a job and of its folder; it is the same each time the sweep is run."""
    parts = [slug(f"{key.rpartition('.')[2]} {format_value(value)}") for key, value in axes.items()]
    return "-".join([slug(row), *parts, f"s{seed}"])


def slug(text: str) -> str:
    """Text in lower case with hyphens, as a part of a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "row"


def last_words(words: Sequence[str]) -> Words:
    """Overrides with only the last one of each key, at its position."""
    kept: dict[str, str] = {}
    for word in words:
        former = kept.pop(override_key(word), "")
        adds = former.startswith("+") and not word.startswith(("+", "~"))
        kept[override_key(word)] = f"+{word}" if adds else word
    return [*kept.values()]


SHOWN = 3


def plans_of(jobs: Sequence[Job]) -> dict[str, Plan]:
    """Plan each job, by its name; a PlanError holds the problems of all, each with its jobs.

    Jobs that differ only in the seed are composed once.
    """
    plans: dict[tuple[str, ...], Plan | None] = {}
    jobs_with: dict[Problem, list[str]] = {}
    wrong: dict[tuple[str, ...], list[Problem]] = {}
    for job in jobs:
        key = _without_seed(job.overrides)
        if key not in plans:
            plans[key], wrong[key] = _planned(job.overrides)
        for problem in wrong[key]:
            jobs_with.setdefault(problem, []).append(job.name)
    by_name = {job.name: plan for job in jobs if (plan := plans[_without_seed(job.overrides)])}
    for job in jobs:
        former, plan = by_name.get(job.after or ""), by_name.get(job.name)
        models = [found.config["model"] for found in (former, plan) if found is not None]
        if len(models) == 2 and (fault := incompatible_model(*models)):
            problem = Problem("begin_from", f"{job.after} {fault}")
            jobs_with.setdefault(problem, []).append(job.name)
    if jobs_with:
        raise PlanError([with_jobs(p, names, len(jobs)) for p, names in jobs_with.items()])
    return by_name


def _without_seed(words: Words) -> tuple[str, ...]:
    return tuple(word for word in words if override_key(word) != "seed")


def _planned(words: Words) -> tuple[Plan | None, list[Problem]]:
    try:
        return plan_from_words(*normalise_words(words)), []
    except PlanError as error:
        return None, error.problems


def with_jobs(problem: Problem, names: Sequence[str], total: int) -> Problem:
    """The problem with the names of its jobs; without a fix that would change other jobs too."""
    if len(names) == total:
        where = f" (in every job of the {total})" if total > 1 else ""
        return replace(problem, message=f"{problem.message}{where}")
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    where = ", ".join(names[:SHOWN]) + more
    return Problem(problem.key, f"{problem.message} (in {where})")
