"""What is shown while a run goes on: live lines on a terminal, else one line per iteration."""

import math
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlfactory.run.format import clock, number

_SPLIT = ("sample", "score", "learn")


class Progress:
    """Use as a context; call `phase` and `advance` as work goes on and `iteration` after each.

    A terminal gets two live lines. Any other stream gets plain lines without control characters:
    one per iteration, and one for each phase outside the iterations (`evaluate`).
    """

    def __init__(self, total_iterations: int, *, stream: TextIO) -> None:
        self.total_iterations = total_iterations
        self._stream = stream
        console = Console(file=stream)
        self.is_live = stream.isatty() and not console.is_dumb_terminal
        self._phase, self._done, self._total = "", 0, 0
        self._finished = 0
        self._seconds: list[float] = []
        self._facts = ""
        self._began = self._marked = time.monotonic()
        # Live renders once as it is made, so the state stands before it
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=6, transient=False
        )

    def __enter__(self) -> Self:
        """Start the clock and the display."""
        self._began = self._marked = time.monotonic()
        if self.is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the last state on the terminal."""
        if self.is_live:
            self._live.stop()

    def begin(self, finished: int) -> None:
        """Note that so many iterations were done in an earlier sitting."""
        self._finished = finished

    def phase(self, name: str, *, total: int) -> None:
        """Begin a phase of `total` things (samples, updates, prompts)."""
        if name == _SPLIT[0]:
            # what came before, an evaluation say, is not part of the iteration's time
            self._marked = time.monotonic()
        self._phase, self._done, self._total = name, 0, total
        if self.is_live:
            self._live.refresh()
        elif name not in _SPLIT:
            self._print(f"{name} {total}")

    def advance(self, count: int = 1) -> None:
        """Note that `count` more things of the phase are done."""
        self._done = min(self._done + count, self._total)

    def iteration(self, i: int, metrics: Mapping[str, float], reward_name: str) -> None:
        """Note that iteration `i`, counted from 0, is done, with its metrics."""
        self._finished = i + 1
        now = time.monotonic()
        self._seconds.append(metrics.get("time/iteration", now - self._marked))
        self._marked = now
        self._facts = "  ".join(_facts(metrics, reward_name))
        if self.is_live:
            self._live.refresh()
        else:
            place = f"{self._finished:>{len(str(self.total_iterations))}}/{self.total_iterations}"
            self._print(f"iteration {place}  {self._facts}  {self._clocks()}")

    def say(self, text: str) -> None:
        """Print a line that stays, above the live ones."""
        if self.is_live:
            self._live.console.print(Text(text))
        else:
            self._print(text)

    @property
    def remaining(self) -> float:
        """Seconds until the last iteration, at the mean pace so far; NaN before the first."""
        if not self._seconds:
            return math.nan
        left = max(self.total_iterations - self._finished, 0)
        return left * sum(self._seconds) / len(self._seconds)

    def _clocks(self) -> str:
        return f"{clock(time.monotonic() - self._began)} elapsed, {clock(self.remaining)} left"

    def _render(self) -> RenderableType:
        current = min(self._finished + 1, self.total_iterations)
        top = Table.grid(padding=(0, 2))
        bar = ProgressBar(
            total=max(self._total, 1),
            completed=self._done,
            width=20,
            complete_style="blue",
            finished_style="green",
        )
        top.add_row(
            Text(f"{self._phase:<8}", style="bold"),
            bar,
            Text(f"{self._done}/{self._total}"),
            Text(f"iteration {current}/{self.total_iterations}"),
            Text(self._clocks(), style="dim"),
        )
        facts = Text(self._facts, no_wrap=True, overflow="ellipsis")
        return Group(top, facts)

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _facts(metrics: Mapping[str, float], reward_name: str) -> list[str]:
    """What is worth a place on the line, as far as it was measured."""
    facts = [f"{reward_name} {number(metrics.get(f'reward/{reward_name}/mean', math.nan))}"]
    if "kl/reference" in metrics:
        facts.append(f"KL {metrics['kl/reference']:.2g}")
    if "ratio/clip_fraction" in metrics:
        facts.append(f"clip {100 * metrics['ratio/clip_fraction']:.1f}%")
    split = {phase: metrics[f"time/{phase}"] for phase in _SPLIT if f"time/{phase}" in metrics}
    if split:
        facts.append(" ".join(f"{phase} {seconds:.1f}s" for phase, seconds in split.items()))
    return facts
