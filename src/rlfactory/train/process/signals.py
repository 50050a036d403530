"""Signal handling: the first of `SIGNALS` requests a stop at the next safe point, a second one
stops at once.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from signal import SIGINT
from types import FrameType
from typing import TYPE_CHECKING, Literal, Self

from rlfactory.utils.processes import SIGNALS, signal_handlers

if TYPE_CHECKING:  # the launcher reads this file, and imports no torch
    from rlfactory.train.components import ProgressListener

STOPPING = (
    b"\nstopping at the next step; finished iterations are saved; once more stops at once,"
    b" and what came after the last checkpoint is lost\n"
)
ECHO = 2.0
"""Seconds in which the same signal counts once: schedulers and launchers both send it."""


class Interruption(Exception):
    """Leaves the work in progress because a stop was requested; what was done before is kept."""


class Stop(ExitStack):
    """Handles signals inside `with stop:`.

    Inside `stop.wished()` too, a first signal only sets `asked`, and the loop calls `leave` at its
    safe points; any other signal raises KeyboardInterrupt at once. Only the main thread can handle
    signals; in another one the caller's handlers stay.

    Attributes:
        requested: the number of the first signal to this process, 0 before.
        asked: the signal that the loop obeys: `requested`, or of several ranks what `agree` found.
        quiet: print nothing, as all ranks but one do.
        has_interrupted: whether a signal has raised KeyboardInterrupt, which a library may have
            turned into an error of its own.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__()
        self.requested, self.asked, self.quiet = 0, 0, quiet
        self._is_patient = self._is_agreed = self.has_interrupted = False
        self._last_signal = 0.0

    def __enter__(self) -> Self:
        self.enter_context(signal_handlers(self._handle, SIGNALS))
        return self

    @contextmanager
    def wished(self) -> Iterator[None]:
        """Where there is something to lose: a first signal is noted, and waits for `leave`."""
        self._is_patient = True
        try:
            yield
        except Exception:
            self.hold_back()
            raise
        self._is_patient = False

    def hold_back(self) -> None:
        """After an error, have a first signal interrupt nothing more: torchrun sends one to the
        ranks that are left, and they still have to say and save what they can.
        """
        self._is_patient = self.quiet = True

    def agree(self, all_reduce_max: Callable[[float], float]) -> None:
        """Have all ranks obey a signal to any of them. A collective.

        From then on a signal alone does not set `asked`: one that arrives during the collective
        waits for the next one, else this rank would stop by itself, or forget it.
        """
        self._is_agreed = True
        self.asked = int(all_reduce_max(self.asked or self.requested))

    def leave(self) -> None:
        """Raise Interruption if a stop was requested."""
        if self.asked:
            raise Interruption

    @property
    def is_requested(self) -> bool:
        """Whether a stop was requested, perhaps in this rank alone so far."""
        return bool(self.asked or self.requested)

    @property
    def status(self) -> Literal["interrupted", "preempted"]:
        """The run's status: stopped by Ctrl-C, or by any other signal (a scheduler's)."""
        return "interrupted" if (self.asked or self.requested) in (0, SIGINT) else "preempted"

    @property
    def code(self) -> int:
        """The exit code by which shells and launchers know that signal."""
        return 128 + (self.asked or self.requested or SIGINT)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        is_first = not self.requested
        is_echo = number == self.requested and now - self._last_signal < ECHO
        if is_echo and number != SIGINT:
            return
        self.requested, self._last_signal = self.requested or number, now
        if not self._is_agreed:
            self.asked = self.requested
        if not (is_first and self._is_patient):
            self.has_interrupted = True
            raise KeyboardInterrupt
        if not self.quiet:
            with suppress(OSError):  # nobody may read it
                os.write(2, STOPPING)  # not print: the signal may have interrupted one half-way


@dataclass(frozen=True)
class StopAwareProgress:
    """Passes progress on to `listener`, and calls `leave` after each step, which may raise."""

    listener: "ProgressListener"
    leave: Callable[[], None]

    def phase(self, name: str, *, total: int) -> None:
        """A phase of `total` steps begins."""
        self.listener.phase(name, total=total)

    def advance(self, count: int) -> None:
        """`count` steps are done; 0 stands for one too small to be shown."""
        if count:
            self.listener.advance(count)
        self.leave()
