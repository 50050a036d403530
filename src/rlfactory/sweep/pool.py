"""Jobs as processes on this machine, so many at once. One that fails leaves the others be."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

from rlfactory.sweep.folder import take
from rlfactory.sweep.process import Launch, begin
from rlfactory.sweep.status import state_of

PAUSE = 0.1


class Watcher(Protocol):
    """Is told what becomes of jobs."""

    def change(self, name: str, state: str) -> None:
        """A job begins (`running`), is waited for (`held`) or ends."""

    def refresh(self) -> None:
        """Some time has passed."""


@dataclass
class Asked:
    """The signals that asked us to stop, the first of which counts."""

    signals: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.signals)


@contextmanager
def listening() -> Iterator[Asked]:
    """Within it Ctrl-C and SIGTERM are noted, not obeyed."""
    asked = Asked()

    def hear(number: int, frame: FrameType | None) -> None:
        asked.signals.append(number)

    former: dict[int, Any] = {n: signal.signal(n, hear) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@dataclass
class _Running:
    launch: Launch
    process: subprocess.Popen[bytes]
    lock: int


class Pool:
    """Runs launches until none is left or it is asked to stop; `codes` are their exit codes.

    `environments` has one for each slot: as many jobs run at once.
    """

    def __init__(
        self, environments: Sequence[Mapping[str, str]], watcher: Watcher, asked: Asked
    ) -> None:
        self.environments, self.watcher, self.asked = environments, watcher, asked
        self.codes: dict[str, int] = {}
        self._running: dict[int, _Running] = {}
        self._waiting: list[Launch] = []
        self._passed = 0

    def __call__(self, launches: Sequence[Launch]) -> None:
        """Run them in order, each when the one that it comes after is done."""
        self._waiting = [*launches]
        while self._running or (self._waiting and not self.asked):
            self._pass_on()
            if not self.asked:
                self._fill()
            self._gather()
            self.watcher.refresh()
            time.sleep(PAUSE)

    def _fill(self) -> None:
        """Start what can be started where there is room."""
        for slot in range(len(self.environments)):
            if slot not in self._running:
                self._start_one(slot)

    def _start_one(self, slot: int) -> None:
        for launch in [*self._waiting]:
            ready = self._is_ready(launch)
            if ready is None:
                self._waiting.remove(launch)
                self.watcher.change(launch.job.name, "blocked")
            elif ready and self._start(slot, launch):
                return

    def _is_ready(self, launch: Launch) -> bool | None:
        """Whether a job can start; None if it never can, as the one before it failed."""
        after = launch.job.after
        if after is None or state_of(launch.run.parent / after) == "done":
            return True
        ahead = [r.launch for r in self._running.values()] + self._waiting
        return False if any(other.job.name == after for other in ahead) else None

    def _start(self, slot: int, launch: Launch) -> bool:
        """Start a job unless it is done or a process from before is still at it."""
        name = launch.job.name
        launch.lock.parent.mkdir(parents=True, exist_ok=True)
        lock = take(launch.lock)
        if lock is None:
            self.watcher.change(name, "held")
            return False
        self._waiting.remove(launch)
        if state_of(launch.run) == "done":
            os.close(lock)
            self.watcher.change(name, "done")
            return False
        process = begin(launch, lock, self.environments[slot])
        self._running[slot] = _Running(launch, process, lock)
        self.watcher.change(name, "running")
        return True

    def _gather(self) -> None:
        """Take leave of those that have ended."""
        for slot, running in [*self._running.items()]:
            code = running.process.poll()
            if code is None:
                continue
            os.close(running.lock)
            del self._running[slot]
            name = running.launch.job.name
            self.codes[name] = code
            done = state_of(running.launch.run) == "done"
            ended = "done" if done else "stopped" if self.asked else "failed"
            self.watcher.change(name, ended)

    def _pass_on(self) -> None:
        """Pass each new signal on to the jobs; a third one ends them at once."""
        for number in self.asked.signals[self._passed :]:
            self._passed += 1
            kill = self._passed > 2
            for running in self._running.values():
                running.process.send_signal(signal.SIGKILL if kill else number)


Runner = Callable[[Sequence[Launch]], None]
