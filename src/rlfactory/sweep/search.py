"""Trials of a search: random ones, known beforehand, or those that Optuna asks for in turn."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlfactory.problems import PlanError, Problem
from rlfactory.sameness import shown
from rlfactory.sweep.jobs import last_words
from rlfactory.sweep.objective import objective
from rlfactory.sweep.pool import Asked, Runner
from rlfactory.sweep.process import launch_of
from rlfactory.sweep.request import Request
from rlfactory.sweep.source import Sheet
from rlfactory.sweep.space import Space, Trial, share_of, space, typed_space
from rlfactory.sweep.status import state_of
from rlfactory.sweep.table import Column, Job, Table

Values = dict[str, Any]


@dataclass(frozen=True)
class Search:
    """A search of the first column's best number, in each row by itself."""

    sweeper: str
    spaces: Mapping[str, Space]
    trials: int
    column: Column
    folder: Path
    at_once: int

    def lines(self) -> Iterator[str]:
        """What is searched, for the plan."""
        over = f"{self.trials} trials a row over {', '.join(self.spaces)}"
        yield f"\nsearch: {over}, {self.sweeper}, by {self.column.label}"

    def probes(self, grid: Sequence[Job]) -> list[Job]:
        """Jobs at both ends of every space: what is wrong with a key is wrong there."""
        ends = [{key: s.at(share) for key, s in self.spaces.items()} for share in (0.0, 1 - 2**-20)]
        return [trial_of(job, i, values) for job in grid for i, values in enumerate(ends)]

    def known(self, grid: Sequence[Job]) -> list[Job]:
        """The jobs that are known beforehand: of Optuna, those that it asked for before."""
        if self.sweeper == "random":
            return [self._random(job, n) for n in range(self.trials) for job in grid]
        try:
            jobs = Table.load(self.folder).jobs
        except (OSError, ValueError):  # whoever joins the folder's table says so
            return []
        rows = {job.row for job in grid}
        return [job for job in jobs if "trial" in job.axes and job.row in rows]

    def _random(self, job: Job, number: int) -> Job:
        values = {k: s.at(share_of(job.row, number, k)) for k, s in self.spaces.items()}
        return trial_of(job, number, values)

    def run(
        self,
        jobs: Sequence[Job],
        grid: Sequence[Job],
        table: Table,
        runner: Runner,
        add: Callable[[Sequence[Job]], None],
        stop: Asked,
    ) -> list[Job]:
        """Run the trials that are known, then those that follow from them; returns all."""
        runner([launch_of(job, self.folder) for job in jobs])
        found = [*jobs]
        while self.sweeper == "optuna" and not stop:
            more = self._asked(found, grid)
            if not more:
                break
            found += more
            table = replace(table, jobs=[*table.jobs, *more])
            table.save(self.folder)
            add(more)
            runner([launch_of(job, self.folder) for job in more])
        return found

    def _asked(self, jobs: Sequence[Job], grid: Sequence[Job]) -> list[Job]:
        """The next jobs of each row: as many trials as run at once."""
        from rlfactory.sweep.optuna_sweeper import ask

        more: list[Job] = []
        for row in dict.fromkeys(job.row for job in grid):
            told = self.told([job for job in jobs if job.row == row])
            count = max(0, min(self.at_once, self.trials - len(told)))
            values = (
                ask(self.spaces, told, self.column.better, count, seed=row) if count > 0 else []
            )
            here = [job for job in grid if job.row == row]
            more += [trial_of(j, len(told) + i, v) for i, v in enumerate(values) for j in here]
        return more

    def told(self, jobs: Sequence[Job]) -> list[Trial]:
        """Each trial with its mean over the runs that count, NaN unless all of these are done."""
        begun_from = {job.after for job in jobs}
        trials: dict[tuple[str, int], list[Job]] = {}
        for job in jobs:
            if job.name not in begun_from:
                trials.setdefault((job.row, job.axes["trial"]), []).append(job)
        return [self._told(row, number, of) for (row, number), of in trials.items()]

    def _told(self, row: str, number: int, jobs: Sequence[Job]) -> Trial:
        runs = [self.folder / job.folder for job in jobs]
        scores = [objective(r, self.column) if state_of(r) == "done" else math.nan for r in runs]
        values = {key: jobs[0].axes[key] for key in self.spaces}
        return Trial(row, number, values, sum(scores) / len(scores))

    def best_lines(self, jobs: Sequence[Job]) -> Iterator[str]:
        """The best trial of each row, as overrides that one can type."""
        sign = -1 if self.column.better == "lower" else 1
        told = [trial for trial in self.told(jobs) if not math.isnan(trial.score)]
        for row in dict.fromkeys(trial.row for trial in told):
            best = max((t for t in told if t.row == row), key=lambda t: sign * t.score)
            words = " ".join(f"{key}={shown(value)}" for key, value in best.values.items())
            score = f"{self.column.label} {best.score:.{self.column.digits}f}"
            yield f"best of {row}: trial {best.number}, {score}: {words}"


def trial_of(job: Job, number: int, values: Values) -> Job:
    """A row's run with a trial's values."""
    words = last_words([*job.overrides, *(f"{k}={shown(v)}" for k, v in values.items())])
    name = _named(job.name, number)
    after = None if job.after is None else _named(job.after, number)
    return Job(name, job.row, name, words, {**values, "trial": number, **job.axes}, after)


def _named(name: str, number: int) -> str:
    stem, _, seed = name.rpartition("-")
    return f"{stem}-t{number}-{seed}"


def search_of(
    request: Request, sheet: Sheet, size: str, column: Column, folder: Path
) -> Search | None:
    """The search that a request and a file ask for, if they do."""
    spaces = _spaces(sheet, size) | {k: typed_space(k, text) for k, text in request.search.items()}
    if request.sweeper == "basic" or (not spaces and request.sweeper is None):
        return None
    if not spaces:
        message = f"{request.sweeper} has nothing to search"
        raise PlanError([Problem("search", message, "search.optimizer.lr=log(1e-5,1e-3)")])
    if column.better == "neither" or not column.measure:
        message = f"the first column, {column.label}, is nothing that gets better in this size"
        raise PlanError([Problem("search", message)])
    sweeper = request.sweeper or "random"
    if sweeper == "optuna":
        from rlfactory.sweep.optuna_sweeper import require_optuna

        require_optuna()
    return Search(sweeper, spaces, request.trials, column, folder, request.jobs or 1)


def _spaces(sheet: Sheet, size: str) -> dict[str, Space]:
    own = dict(sheet.search.get(size) or {})
    common = {key: node for key, node in sheet.search.items() if key not in sheet.sizes}
    return {key: space(key, node) for key, node in {**common, **own}.items()}
