"""Progress of a run: live lines on a terminal or in a notebook, else one line per iteration."""

import io
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlfactory.utils.console import (
    can_rewrite_lines,
    clock,
    notebook_shell,
    number,
    printable,
    replace_html,
    show_html,
)

_SPLIT = ("sample", "score", "learn")
UNITS = {"sample": "samples", "score": "samples", "learn": "training items", "evaluate": "samples"}
"""The unit of a phase's count."""
OF_DATA = {
    "loss/policy": "loss",
    "eval/loss/mean": "held-out loss",
    "policy/accuracy": "accuracy",
    "preference/margin": "margin",
    "preference/accuracy": "preference accuracy",
}
"""What is shown of a run that learns from the data."""
QUIET_SHARE, QUIET_LEAST, QUIET_MOST = 0.05, 30.0, 300.0
"""A phase prints a line after this share of its time, within these limits in seconds."""
_STYLE = '<pre style="line-height:normal;white-space:pre-wrap">{code}</pre>'
_WIDTH = 110
_SECONDS = 0.5


class Progress:
    """Shows the phase, its progress, the iteration's metrics and the remaining time.

    Use it as a context. Call `phase` and `advance` during the work, `iteration` after each one. A
    terminal or a notebook's cell gets two live lines. Any other stream gets plain lines without
    control characters: one per iteration, one for each phase outside the iterations (`evaluate`),
    and one now and then in a long phase, with the time that is left of it.
    """

    def __init__(self, total_iterations: int, *, stream: TextIO) -> None:
        self.total_iterations = total_iterations
        self._stream = stream
        console = Console(file=stream)
        is_notebook = stream is sys.stdout and notebook_shell() is not None
        self.is_live = is_notebook or can_rewrite_lines(console)
        self._phase, self._done, self._total = "", 0, 0
        self._finished = 0
        self._seconds: list[float] = []
        self._facts = ""
        self._began = self._marked = self._phase_began = self._printed = time.monotonic()
        # last, as Live renders once when it is constructed
        self._notebook = NotebookDisplay(self._render) if is_notebook else None
        self._live = self._notebook or Live(
            console=console, get_renderable=self._render, refresh_per_second=6, transient=False
        )

    def __enter__(self) -> Self:
        """Start the clock and the display."""
        self._began = self._marked = time.monotonic()
        if self.is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the display; its last state stays on the terminal."""
        if self.is_live:
            self._live.stop()

    def begin(self, finished: int) -> None:
        """Set the iterations that were done before the run was resumed."""
        self._finished = finished

    def phase(self, name: str, *, total: int) -> None:
        """Start a phase of `total` items (samples, updates, prompts)."""
        if name == _SPLIT[0]:
            # an evaluation before it is not part of the iteration's time
            self._marked = time.monotonic()
        self._phase, self._done, self._total = name, 0, total
        self._phase_began = self._printed = time.monotonic()
        if self.is_live:
            self._live.refresh()
        elif name not in _SPLIT:
            self._print(f"{name} {_counted(total, name)}")

    def advance(self, count: int = 1) -> None:
        """Count `count` more items of the phase as done."""
        self._done = min(self._done + count, self._total)
        if self._notebook is not None:  # a terminal's display refreshes itself
            self._notebook.refresh()
        if not self.is_live and self._done < self._total:
            self._print_if_due(time.monotonic())

    def _print_if_due(self, now: float) -> None:
        """Print the progress of a long phase, at intervals that keep a log readable."""
        elapsed = now - self._phase_began
        left = elapsed * (self._total - self._done) / self._done if self._done else math.nan
        expected = elapsed + (left if math.isfinite(left) else 0.0)
        if now - self._printed < max(QUIET_LEAST, min(QUIET_SHARE * expected, QUIET_MOST)):
            return
        self._printed = now
        position = f"{self._phase} {self._done}/{_counted(self._total, self._phase)}"
        if self._phase in _SPLIT:
            position = f"iteration {self._finished + 1}/{self.total_iterations}: {position}"
        self._print(f"{position}, {clock(elapsed)} elapsed, {clock(left)} left")

    def iteration(self, i: int, metrics: Mapping[str, float], reward_name: str) -> None:
        """Count iteration `i`, from 0, as done, and show its metrics."""
        self._finished = i + 1
        now = time.monotonic()
        self._seconds.append(metrics.get("time/iteration", now - self._marked))
        self._marked = now
        self._facts = printable("  ".join(_facts(metrics, reward_name)))
        if self.is_live:
            self._live.refresh()
        else:
            total = str(self.total_iterations)
            position = f"{self._finished:>{len(total)}}/{total}"
            self._print(f"iteration {position}  {self._facts}  {self._clocks()}")

    def say(self, text: str) -> None:
        """Print a line that stays, above the live ones."""
        text = printable(text)
        if isinstance(self._live, Live) and self.is_live:
            self._live.console.print(Text(text))
        else:
            self._print(text)

    @property
    def remaining(self) -> float:
        """Seconds until the last iteration, by the mean time so far; NaN before the first."""
        if not self._seconds:
            return math.nan
        left = max(self.total_iterations - self._finished, 0)
        return left * sum(self._seconds) / len(self._seconds)

    def _clocks(self) -> str:
        return f"{clock(time.monotonic() - self._began)} elapsed, {clock(self.remaining)} left"

    def _render(self) -> RenderableType:
        current = min(self._finished + 1, self.total_iterations)
        colors: Any = {"complete_style": "blue", "finished_style": "green"}
        bar = ProgressBar(max(self._total, 1), self._done, width=20, **colors)
        position = f"iteration {current}/{self.total_iterations}"
        counts = (Text(f"{self._done}/{self._total}"), Text(position))
        top = Table.grid(padding=(0, 2))
        phase, clocks = Text(f"{self._phase:<8}", style="bold"), Text(self._clocks(), style="dim")
        top.add_row(phase, bar, *counts, clocks)
        return Group(top, Text(self._facts, no_wrap=True, overflow="ellipsis"))

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _counted(total: int, phase: str) -> str:
    """A number with its unit."""
    unit = UNITS.get(phase, "")
    return f"{total} {unit.removesuffix('s') if total == 1 else unit}".rstrip()


def _facts(metrics: Mapping[str, float], reward_name: str) -> list[str]:
    """The most important metrics, as far as they were measured."""
    facts = []
    if f"reward/{reward_name}/mean" in metrics:
        facts.append(f"{reward_name} {number(metrics[f'reward/{reward_name}/mean'])}")
    if "policy/accuracy" in metrics or "preference/accuracy" in metrics:
        shown = {name: metrics[key] for key, name in OF_DATA.items() if key in metrics}
        facts += [f"{name} {number(value)}" for name, value in shown.items()]
    if "kl/reference" in metrics:
        facts.append(f"KL {metrics['kl/reference']:.2g}")
    if "ratio/clip_fraction" in metrics:
        facts.append(f"clip {100 * metrics['ratio/clip_fraction']:.1f}%")
    split = {phase: metrics[f"time/{phase}"] for phase in _SPLIT if f"time/{phase}" in metrics}
    if split:
        facts.append(" ".join(f"{phase} {seconds:.1f}s" for phase, seconds in split.items()))
    return facts


class NotebookDisplay:
    """Shows what `render` returns, as `rich.live.Live` does on a terminal.

    It needs no widgets, so it works wherever IPython shows HTML. Each update is a message to the
    browser, so there are at most two a second.
    """

    def __init__(self, render: Callable[[], RenderableType]) -> None:
        self._render = render
        self._handle: Any = None
        self._shown = 0.0

    def start(self) -> None:
        """Show it below the cell."""
        self._handle = show_html(as_html(self._render()))

    def refresh(self) -> None:
        """Show the present state, unless the last update was less than half a second ago."""
        if time.monotonic() - self._shown >= _SECONDS:
            self.stop()

    def stop(self) -> None:
        """Show the present state, which stays if it is the last one."""
        self._shown = time.monotonic()
        replace_html(self._handle, as_html(self._render()))


def as_html(renderable: RenderableType) -> str:
    """The text that rich prints on a terminal of 110 columns, as HTML."""
    # in a kernel rich would also display each line that it prints
    console = Console(
        file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, force_jupyter=False
    )
    console.print(renderable)
    return console.export_html(inline_styles=True, code_format=_STYLE)
