"""From a sweep's file to the runs of one size: rows by stages, axes and seeds."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, get_type_hints

from rlfactory.problems import PlanError, Problem, closest, key_of, unknown_key
from rlfactory.sameness import shown
from rlfactory.sweep.source import Line, Sheet, Words
from rlfactory.sweep.table import Column, Job, Row
from rlfactory.typecheck import describe, fits

Axes = Mapping[str, Sequence[Any]]


def size_of(sheet: Sheet, size: str) -> str:
    """A size that the file has."""
    if size in sheet.sizes:
        return size
    guess = closest(size, sheet.sizes)
    remedy = f"size={guess}" if guess else f"size={next(iter(sheet.sizes))}"
    message = f"there is no size {size}; known are {', '.join(sheet.sizes)}"
    raise PlanError([Problem("size", message, remedy)])


def seeds_of(sheet: Sheet, size: str) -> list[int]:
    """The file's seeds for a size."""
    found = sheet.seeds.get(size, []) if isinstance(sheet.seeds, dict) else sheet.seeds
    if not found:
        raise PlanError([Problem("seeds", f"is empty for size {size}", "seed=0")])
    return found


def axes_of(sheet: Sheet, size: str, line: Line | None = None) -> dict[str, list[Any]]:
    """The axes that all rows have, or one row besides, by key."""
    found = {**sheet.axes, **(line.axes if line else {})}
    nested = {k: v for k, v in found.items() if k in sheet.sizes}
    plain = {k: v for k, v in found.items() if k not in nested} | dict(nested.get(size) or {})
    for key, values in plain.items():
        if not isinstance(values, list) or not values:
            raise PlanError([Problem(f"axes.{key}", f"is {values!r}; allowed is a list of values")])
    return plain


def columns_of(sheet: Sheet, size: str) -> list[Column]:
    """The table's columns with what this size measures."""
    kinds = {k: v for k, v in get_type_hints(Column).items() if k not in ("name", "measure")}
    kinds |= dict.fromkeys(sheet.sizes, str)
    columns = []
    for name, node in sheet.columns.items():
        for key, value in node.items():
            if key not in kinds:
                raise PlanError([unknown_key(f"columns.{name}.{key}", kinds)])
            if not fits(value, kinds[key]):
                allowed = f"is {value!r}; allowed is {describe(kinds[key])}"
                raise PlanError([Problem(f"columns.{name}.{key}", allowed)])
        plain = {k: v for k, v in node.items() if k not in sheet.sizes}
        columns.append(Column(name, measure=node.get(size, ""), **{"label": name, **plain}))
    return columns


def rows_of(sheet: Sheet) -> list[Row]:
    """The table's rows, those that nothing is run for among them."""
    return [Row(line.name, line.claimed, line.note, line.before) for line in sheet.rows]


def jobs_of(sheet: Sheet, size: str, typed: Words, axes: Axes, seeds: Sequence[int]) -> list[Job]:
    """All runs of a size. What was `typed` counts more than the file; so do the typed `axes`."""
    jobs = [
        job
        for line in sheet.rows
        for stages in [stages_of(line, size)]
        if stages is not None
        for job in _row_jobs(line.name, stages, _of(sheet, size, line, axes), typed, seeds)
    ]
    names = [job.name for job in jobs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PlanError([Problem("rows", f"two jobs are named {name}") for name in twice])
    return jobs


def _of(sheet: Sheet, size: str, line: Line, typed: Axes) -> tuple[Words, Axes]:
    common = [*sheet.sizes[size], *(line.overrides or []), *(line.by_size.get(size) or [])]
    return common, {**axes_of(sheet, size, line), **typed}


def stages_of(line: Line, size: str) -> list[Words] | None:
    """What each run of a row overrides besides, most often nothing once; None: nothing is run."""
    if size in line.by_size and line.by_size[size] is None:
        return None
    stages = line.stages.get(size) if isinstance(line.stages, dict) else line.stages
    if stages:
        return stages
    return [[]] if line.overrides is not None or size in line.by_size else None


def _row_jobs(
    row: str, stages: list[Words], of: tuple[Words, Axes], typed: Words, seeds: Sequence[int]
) -> Iterator[Job]:
    common, axes = of
    fixed = {key_of(word) for word in typed}
    varied = {key: values for key, values in axes.items() if key not in fixed}
    for values, seed in product(product(*varied.values()), seeds):
        point, after = dict(zip(varied, values, strict=True)), None
        for number, stage in enumerate(stages, start=1):
            told = {**point, "stage": number} if len(stages) > 1 else point
            here = [f"{key}={shown(value)}" for key, value in {**point, "seed": seed}.items()]
            name = job_name(row, told, seed)
            words = last_words([*common, *stage, *here, *typed])
            yield Job(name, row, name, words, {**told, "seed": seed}, after)
            after = name


def job_name(row: str, axes: Mapping[str, Any], seed: int) -> str:
    """A folder's name that stays the same however often the sweep is run."""
    parts = [slug(f"{key.rpartition('.')[2]} {shown(value)}") for key, value in axes.items()]
    return "-".join([slug(row), *parts, f"s{seed}"])


def slug(text: str) -> str:
    """Text as a part of a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "row"


def last_words(words: Sequence[str]) -> Words:
    """Overrides, of those of one key the last alone, where it stands."""
    kept: dict[str, str] = {}
    for word in words:
        former = kept.pop(key_of(word), "")
        adds = former.startswith("+") and not word.startswith(("+", "~"))
        kept[key_of(word)] = f"+{word}" if adds else word
    return [*kept.values()]
