"""What is shown while a sweep runs: a live table on a terminal, else a line for each change."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from rlfactory.run.format import clock, number
from rlfactory.sweep.status import Standing, standing
from rlfactory.sweep.table import Job

STYLES = {"running": "bold", "done": "green", "failed": "red", "blocked": "red", "waiting": "dim"}
EVERY = 60.0  # seconds between lines about what runs, where there is no terminal


class Board:
    """Use as a context; `iterations` are each job's, `score` the reward that is looked at."""

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
        self._is_live = stream.isatty() and not self._console.is_dumb_terminal
        self._said = time.monotonic()
        self._live = Live(
            console=self._console, get_renderable=self.table, refresh_per_second=1, transient=True
        )

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_live:
            self._live.stop()

    def add(self, jobs: Sequence[Job]) -> None:
        """Further jobs, which nobody knew of before."""
        self.jobs |= {job.name: job for job in jobs}
        self.states |= {job.name: "waiting" for job in jobs}

    def change(self, name: str, state: str) -> None:
        """Note what becomes of a job, and say so once."""
        if self.states.get(name) == state:
            return
        self.states[name] = state
        if not self._is_live:
            self._say(name)

    def refresh(self) -> None:
        """Where there is no terminal, a line about each job that runs, once in a while."""
        if self._is_live or time.monotonic() - self._said < EVERY:
            return
        for name, state in self.states.items():
            if state == "running":
                self._say(name)

    def _say(self, name: str) -> None:
        self._said = time.monotonic()
        line = "  ".join(cell for cell in self._cells(name) if cell)
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def table(self) -> RenderableType:
        """All jobs, a line each, those that are over at the top."""
        table = RichTable(box=None, padding=(0, 2, 0, 0))
        for title in ("job", "seed", "status", "iteration", self.score or "score", "left"):
            table.add_column(title, justify="left" if title in ("job", "status") else "right")
        for name, state in self._in_view():
            job, cells = self.jobs[name], self._cells(name)
            seed = str(job.axes.get("seed", ""))
            table.add_row(Text(name), seed, *cells[1:], style=STYLES.get(state, ""))
        return table

    def _in_view(self) -> list[tuple[str, str]]:
        """As many jobs as the screen holds, those that run among them."""
        room, pairs = max(self._console.height - 3, 3), list(self.states.items())
        first = next((i for i, (_, state) in enumerate(pairs) if state == "running"), 0)
        begin = max(0, min(first - 2, len(pairs) - room))
        return pairs[begin : begin + room]

    def _cells(self, name: str) -> list[str]:
        """Name, status, iteration, score and time left, empty where there is none yet."""
        state = self.states[name]
        if state in ("waiting", "blocked"):
            return [name, state, "", "", ""]
        found = standing(self.folder / self.jobs[name].folder, self.score)
        of = self.iterations.get(name)
        place = f"{found.iteration}/{of or '?'}" if found.iteration else ""
        score = "" if math.isnan(found.score) else number(found.score)
        left = f"{clock(_left(found, of))} left" if state == "running" and found.iteration else ""
        return [name, state, place, score, left]


def _left(found: Standing, iterations: int | None) -> float:
    """Seconds until a run ends, at its mean pace so far."""
    if not found.iteration or iterations is None:
        return math.nan
    return found.seconds / found.iteration * (iterations - found.iteration)
