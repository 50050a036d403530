"""A sweep's display: its plan beforehand, a live table or lines of changes, and the outcome."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TextIO, get_args

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from rlfactory.config.plan import Plan
from rlfactory.sweep.process import command_of
from rlfactory.sweep.sweep_file import SweepFile
from rlfactory.sweep.sweep_folder import State, failure, job_output, read_status, state_of
from rlfactory.sweep.table import Job, Table
from rlfactory.utils.console import can_rewrite_lines, clock, number

OUTCOMES = {"resume": "interrupted", "retry": "failed", "new": "not begun", "done": "done"}


def plan_lines(
    sheet: SweepFile, table: Table, jobs: Sequence[Job], plans: Mapping[str, Plan], folder: Path
) -> Iterator[str]:
    """The sweep's description, its budget, and each job with its status and its command."""
    about = sheet.about
    states = [state_of(folder / job.folder) for job in jobs]
    counts = {state: states.count(state) for state in get_args(State)}
    source = ", ".join(filter(None, [about.paper, about.table]))
    yield f"{about.title}: {source}" if source else about.title
    facts = {
        "size": table.size,
        "ran here": about.ran,
        "tolerance": about.tolerance,
        "jobs": f"{len(jobs)}: {', '.join(f'{n} {state}' for state, n in counts.items() if n)}",
        "budget": _budget(table, jobs, plans, folder),
        "folder": str(folder),
    }
    width = max(map(len, facts))
    yield from (f"  {name:<{width}}  {text}" for name, text in facts.items() if text)
    yield ""
    for job, state in zip(jobs, states, strict=True):
        yield f"{state:<6}  {command_of(job, folder)}"


def _budget(table: Table, jobs: Sequence[Job], plans: Mapping[str, Plan], folder: Path) -> str:
    """The cost of all jobs as far as it is known: forward passes, iterations, hours."""
    known = [plans[job.name] for job in jobs if job.name in plans]
    evaluations = sum(plan.evaluations * plan.config["iterations"] for plan in known)
    parts = [f"{evaluations:,.0f} forward passes"] if evaluations else []
    parts += [f"{sum(plan.config['iterations'] for plan in known):,} iterations"]
    if table.size == "full" and table.about.gpu_hours is not None:
        parts.append(f"about {table.about.gpu_hours:g} GPU-hours")
    statuses = [read_status(folder / job.folder) for job in jobs]
    seconds = [status.seconds for status in statuses if status.state == "done" and status.seconds]
    if seconds and (left := sum(status.state != "done" for status in statuses)):
        mean = sum(seconds) / len(seconds)
        parts.append(f"{clock(mean)} a job so far, {clock(mean * left)} of jobs left")
    return "; ".join(parts)


def outcome_lines(
    jobs: Sequence[Job], folder: Path, states: Mapping[str, str], score: str
) -> Iterator[str]:
    """A line for each job with its outcome; below, the reason of each failure."""
    width = max((len(job.name) for job in jobs), default=0)
    for job in jobs:
        status = read_status(folder / job.folder, score)
        ended = states.get(job.name)  # a job may end without writing its state
        outcome = ended if ended in ("blocked", "failed") else OUTCOMES[status.state]
        reached = f"  iteration {status.iteration}" if status.iteration else ""
        yield f"{job.name:<{width}}  {outcome:<11}{reached}".rstrip()
    for job in jobs:
        if states.get(job.name) == "blocked":
            yield f"\n{job.name} begins with the weights of {job.after}, which is not done"
        elif states.get(job.name) == "failed":
            reason = failure(folder / job.folder, job_output(folder, job))
            yield "\n".join([f"\n{job.name} failed:", *(f"  {line}" for line in reason)])
            yield f"  see {job_output(folder, job)}"


STYLES = {"running": "bold", "done": "green", "failed": "red", "blocked": "red", "waiting": "dim"}
EVERY = 60.0  # seconds between lines about running jobs, where there is no terminal


class LiveTable:
    """The states of jobs; `iterations` are each job's total, `score` is the reward to show."""

    def __init__(
        self,
        jobs: Sequence[Job],
        folder: Path,
        iterations: Mapping[str, int],
        score: str,
        stream: TextIO,
    ) -> None:
        self.folder, self.score, self.iterations = folder, score, iterations
        self.jobs: dict[str, Job] = {}
        self.states: dict[str, str] = {}
        self.add(jobs)
        self._console = Console(file=stream)
        self._is_live = can_rewrite_lines(self._console)
        self._last_line = time.monotonic()
        self._live = Live(
            console=self._console, get_renderable=self.table, refresh_per_second=1, transient=True
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the table meanwhile, where there is a terminal."""
        with self._live if self._is_live else nullcontext():
            yield

    def add(self, jobs: Sequence[Job]) -> None:
        """Add jobs that a search has chosen."""
        self.jobs |= {job.name: job for job in jobs}
        self.states |= {job.name: "waiting" for job in jobs}

    def change(self, name: str, state: str) -> None:
        """Set a job's state; without a terminal a change prints a line."""
        is_new = self.states.get(name) != state
        self.states[name] = state
        if is_new and not self._is_live:
            self._print_line(name)

    def refresh(self) -> None:
        """Without a terminal, print a line about each running job once in `EVERY` seconds."""
        if self._is_live or time.monotonic() - self._last_line < EVERY:
            return
        for name, state in self.states.items():
            if state == "running":
                self._print_line(name)

    def _print_line(self, name: str) -> None:
        self._last_line = time.monotonic()
        line = "  ".join(cell for cell in self._cells(name) if cell)
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def table(self) -> RenderableType:
        """The table of jobs, a line each."""
        table = RichTable(box=None, padding=(0, 2, 0, 0))
        for title in ("job", "seed", "status", "iteration", self.score or "score", "left"):
            table.add_column(title, justify="left" if title in ("job", "status") else "right")
        for name, state in self._in_view():
            job, cells = self.jobs[name], self._cells(name)
            seed = str(job.axes.get("seed", ""))
            table.add_row(Text(name), seed, *cells[1:], style=STYLES.get(state, ""))
        return table

    def _in_view(self) -> list[tuple[str, str]]:
        """As many jobs as fit on the screen, from just above the first running one."""
        room, pairs = max(self._console.height - 3, 3), list(self.states.items())
        first = next((i for i, (_, state) in enumerate(pairs) if state == "running"), 0)
        begin = max(0, min(first - 2, len(pairs) - room))
        return pairs[begin : begin + room]

    def _cells(self, name: str) -> list[str]:
        """Name, status, iteration, score and time left, empty where unknown."""
        state = self.states[name]
        if state in ("waiting", "blocked"):
            return [name, state, "", "", ""]
        status = read_status(self.folder / self.jobs[name].folder, self.score)
        total = self.iterations.get(name)
        progress = f"{status.iteration}/{total or '?'}" if status.iteration else ""
        score = "" if math.isnan(status.score) else number(status.score)
        left = ""
        if state == "running" and status.iteration:  # at its mean pace so far
            further = math.nan if total is None else total - status.iteration
            left = f"{clock(status.seconds / status.iteration * further)} left"
        return [name, state, progress, score, left]
