"""A search: trials with values drawn at random beforehand, or chosen by Optuna one after the other.

A trial's score is `objective`, the mean of the first column over its runs.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlfactory.config.frozen import format_value
from rlfactory.config.problems import PlanError, Problem
from rlfactory.run import metrics
from rlfactory.run.folder import RunFolder
from rlfactory.sweep.jobs import last_words
from rlfactory.sweep.process import Runner, StopRequest, launch_of
from rlfactory.sweep.sweep_arguments import SweepArguments
from rlfactory.sweep.sweep_file import SweepFile
from rlfactory.sweep.sweep_folder import state_of
from rlfactory.sweep.table import Column, Job, Table

KINDS = ("log", "uniform", "int", "choice")
ALLOWED = "allowed are log(LOW,HIGH), uniform(LOW,HIGH), int(LOW,HIGH) and choice(A,B,...)"


@dataclass(frozen=True)
class Space:
    """The values of a key: those between two numbers, both included, or one of several."""

    kind: str
    values: tuple[Any, ...]


def typed_space(key: str, text: str) -> Space:
    """Read a space as the command line has it, `log(1e-6,1e-3)`."""
    call = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text)
    if call is None:
        raise PlanError([Problem(f"search.{key}", f"is {text}; {ALLOWED}")])
    return space(key, {call[1]: [part.strip() for part in call[2].split(",")]})


def space(key: str, node: object) -> Space:
    """Read a space as a sweep's file has it, `{log: [1e-6, 1e-3]}`."""
    if not isinstance(node, Mapping) or len(node) != 1:
        raise PlanError([Problem(f"search.{key}", f"is {node}; {ALLOWED}")])
    ((kind, values),) = node.items()
    if kind not in KINDS or not isinstance(values, list) or not values:
        raise PlanError([Problem(f"search.{key}", f"is {kind}: {values}; {ALLOWED}")])
    if kind == "choice":
        return Space(kind, tuple(values))
    try:
        # PyYAML reads 1e-6 as text
        low, high = (int(v) if kind == "int" else float(v) for v in values)
    except (TypeError, ValueError) as error:
        shown = f"has {values}; allowed are two numbers, the lower first"
        raise PlanError([Problem(f"search.{key}", shown)]) from error
    if not -math.inf < low < high < math.inf or (kind == "log" and low <= 0):
        bound = ", both above 0" if kind == "log" else ""
        shown = f"has {values}; allowed are two numbers, the lower first{bound}"
        raise PlanError([Problem(f"search.{key}", shown)])
    return Space(kind, (low, high))


@dataclass(frozen=True)
class Trial:
    """A trial of a row: its values and the score it reached, NaN while that is unknown."""

    row: str
    number: int
    values: Mapping[str, Any]
    score: float


def require_optuna() -> None:
    """PlanError unless Optuna is installed."""
    if find_spec("optuna") is None:
        message = "a search needs optuna, which is not installed"
        fix = "type pip install 'rlfactory[optuna]'"
        raise PlanError([Problem("hydra/sweeper", f"{message}; {fix}", "hydra/sweeper=basic")])


def draw_random(spaces: Mapping[str, Space], count: int, *, seed: str) -> list[dict[str, Any]]:
    """Draw the values of `count` trials with Optuna's RandomSampler.

    More trials begin with the same ones. Floats have six digits, so that overrides stay short.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {key: _distribution(space) for key, space in spaces.items()}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=_seed(seed)))
    drawn = [study.ask(distributions).params for _ in range(count)]
    return [{key: _short(value, spaces[key]) for key, value in one.items()} for one in drawn]


def ask(
    spaces: Mapping[str, Space], trials: Sequence[Trial], better: str, count: int, *, seed: str
) -> list[dict[str, Any]]:
    """Choose the values of the next `count` trials with Optuna's TPESampler."""
    if not count:
        return []
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {key: _distribution(space) for key, space in spaces.items()}
    sampler = optuna.samplers.TPESampler(
        seed=_seed(seed, len(trials)), constant_liar=True, n_startup_trials=5
    )
    direction = "minimize" if better == "lower" else "maximize"
    study = optuna.create_study(direction=direction, sampler=sampler)
    states = optuna.trial.TrialState
    for trial in trials:
        failed = math.isnan(trial.score)
        score = {"state": states.FAIL} if failed else {"value": trial.score}
        values = {"params": dict(trial.values), "distributions": distributions}
        study.add_trial(optuna.trial.create_trial(**values, **score))
    return [dict(study.ask(distributions).params) for _ in range(count)]


def _distribution(space: Space) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if space.kind == "choice":
        return CategoricalDistribution(space.values)
    low, high = space.values
    if space.kind == "int":
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=space.kind == "log")


def _short(value: Any, space: Space) -> Any:
    """A float in six digits, within its space."""
    if space.kind not in ("log", "uniform"):
        return value
    low, high = space.values
    return min(max(float(f"{value:.6g}"), low), high)


def _seed(*names: object) -> int:
    """A seed below 2**31 that is the same for the same names."""
    digest = hashlib.sha256(repr(names).encode()).digest()
    return int(int.from_bytes(digest[:6]) / 2**48 * 2**31)


@dataclass(frozen=True)
class Search:
    """A search for the first column's best number, separately in each row.

    Attributes:
        sweeper: `random` or `optuna`.
        trials: how many in each row.
        at_once: how many trials Optuna chooses at a time.
    """

    sweeper: str
    spaces: Mapping[str, Space]
    trials: int
    column: Column
    folder: Path
    at_once: int

    def lines(self) -> Iterator[str]:
        """The lines of the plan about the search."""
        over = f"{self.trials} trials a row over {', '.join(self.spaces)}"
        yield f"\nsearch: {over}, {self.sweeper}, by {self.column.label}"

    def probes(self, grid: Sequence[Job]) -> list[Job]:
        """Jobs at both ends of every space: checking them finds what is wrong with a key."""
        ends = [{key: s.values[end] for key, s in self.spaces.items()} for end in (0, -1)]
        return [trial_of(job, i, values) for job in grid for i, values in enumerate(ends)]

    def known(self, grid: Sequence[Job]) -> list[Job]:
        """The jobs known before any runs: all random ones, or those that Optuna chose before."""
        rows = dict.fromkeys(job.row for job in grid)
        if self.sweeper == "random":
            values = {row: draw_random(self.spaces, self.trials, seed=row) for row in rows}
            return [trial_of(j, n, values[j.row][n]) for n in range(self.trials) for j in grid]
        try:
            jobs = Table.load(self.folder).jobs
        except (OSError, ValueError):  # `merge_table` reports a damaged file
            return []
        return [job for job in jobs if "trial" in job.axes and job.row in rows]

    def run(
        self,
        jobs: Sequence[Job],
        grid: Sequence[Job],
        table: Table,
        runner: Runner,
        add: Callable[[Sequence[Job]], None],
        stop: StopRequest,
    ) -> list[Job]:
        """Run the known trials, then those that Optuna chooses from their scores; return all."""
        runner([launch_of(job, self.folder) for job in jobs])
        all_jobs = [*jobs]
        is_optuna = self.sweeper == "optuna"
        while is_optuna and not stop and (more := self._next_jobs(all_jobs, grid)):
            all_jobs += more
            # saved before they run: after a kill these are the known ones
            table = replace(table, jobs=[*table.jobs, *more])
            table.save(self.folder)
            add(more)
            runner([launch_of(job, self.folder) for job in more])
        return all_jobs

    def _next_jobs(self, jobs: Sequence[Job], grid: Sequence[Job]) -> list[Job]:
        """The next jobs of each row: as many trials as run at once."""
        more: list[Job] = []
        for row in dict.fromkeys(job.row for job in grid):
            past = self.trials_of([job for job in jobs if job.row == row])
            count = max(0, min(self.at_once, self.trials - len(past)))
            values = ask(self.spaces, past, self.column.better, count, seed=row)
            row_jobs = [job for job in grid if job.row == row]
            more += [trial_of(j, len(past) + i, v) for i, v in enumerate(values) for j in row_jobs]
        return more

    def trials_of(self, jobs: Sequence[Job]) -> list[Trial]:
        """The trials of jobs, each with the mean over the runs of its last stage.

        NaN unless all of these are done.
        """
        begun_from = {job.after for job in jobs}
        trials: dict[tuple[str, int], list[Job]] = {}
        for job in jobs:
            if job.name not in begun_from:
                trials.setdefault((job.row, job.axes["trial"]), []).append(job)
        found = []
        for (row, number), own in trials.items():
            runs = [self.folder / job.folder for job in own]
            scores = [
                objective(r, self.column) if state_of(r) == "done" else math.nan for r in runs
            ]
            values = {key: own[0].axes[key] for key in self.spaces}
            found.append(Trial(row, number, values, sum(scores) / len(scores)))
        return found

    def best_lines(self, jobs: Sequence[Job]) -> Iterator[str]:
        """The best trial of each row, as overrides that can be typed."""
        sign = -1 if self.column.better == "lower" else 1
        scored = [trial for trial in self.trials_of(jobs) if not math.isnan(trial.score)]
        for row in dict.fromkeys(trial.row for trial in scored):
            best = max((t for t in scored if t.row == row), key=lambda t: sign * t.score)
            words = " ".join(f"{key}={format_value(value)}" for key, value in best.values.items())
            score = f"{self.column.label} {best.score:.{self.column.digits}f}"
            yield f"best of {row}: trial {best.number}, {score}: {words}"


def trial_of(job: Job, number: int, values: Mapping[str, Any]) -> Job:
    """A row's run with a trial's values."""
    words = last_words([*job.overrides, *(f"{k}={format_value(v)}" for k, v in values.items())])
    name = _named(job.name, number)
    after = None if job.after is None else _named(job.after, number)
    return Job(name, job.row, name, words, {**values, "trial": number, **job.axes}, after)


def _named(name: str, number: int) -> str:
    stem, _, seed = name.rpartition("-")
    return f"{stem}-t{number}-{seed}"


def search_of(
    request: SweepArguments, sheet: SweepFile, size: str, column: Column, folder: Path
) -> Search | None:
    """The search that the arguments or the file ask for; None if neither does."""
    nodes = {key: node for key, node in sheet.search.items() if key not in sheet.sizes}
    nodes |= sheet.search.get(size) or {}
    spaces = {key: space(key, node) for key, node in nodes.items()}
    spaces |= {key: typed_space(key, text) for key, text in request.search.items()}
    if request.sweeper == "basic" or (not spaces and request.sweeper is None):
        return None
    if not spaces:
        message = f"hydra/sweeper={request.sweeper} needs at least one key to search"
        raise PlanError([Problem("search", message, "search.optimizer.lr=log(1e-5,1e-3)")])
    if column.better == "neither" or column.measure.partition("/")[0] in ("", "mean", "plan"):
        message = f"in this size the first column, {column.label}, can't be searched: "
        message += "it reads no metric of a run, or neither more nor less of it is better"
        raise PlanError([Problem("search", message)])
    require_optuna()
    sweeper = request.sweeper or "random"
    return Search(sweeper, spaces, request.trials, column, folder, request.jobs or 1)


def objective(run: Path, column: Column) -> float:
    """A column's number of one run, scaled; NaN where the run has none.

    Raises:
        FileError: its metrics can't be read.
    """
    kind, _, name = column.measure.partition("/")
    path = RunFolder(run).metrics
    lines = metrics.read(path) if path.exists() else []
    if kind == "iterations":
        return float(max((line["iteration"] or 0 for line in lines), default=0))
    key = f"eval/{name}/mean" if kind in ("eval", "before") else name
    values = [value for line in lines if (value := line.get(key)) is not None]
    if not values or kind not in ("eval", "before", "last", "max"):
        return math.nan
    window = values[-column.window :]
    of_kind = {"eval": values[-1], "before": values[0], "max": max(values)}
    return float(column.scale * of_kind.get(kind, sum(window) / len(window)))
