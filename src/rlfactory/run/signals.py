"""Being asked to stop: at first a wish, which is granted at the next small step."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Literal, Self

SAID = (
    b"\nstopping at the next step, then saving; once more stops at once,"
    b" and what came after the last checkpoint is lost\n"
)
ECHO = 2.0
"""Seconds in which the same signal counts once: schedulers and launchers both tell a process."""


class Interruption(Exception):
    """The running work is left, as it was asked for; what there was before it is to be kept."""


class Stop:
    """Within `with`, signals are heard. Within `wished()` too, a first one only sets `asked` to its
    number, and whoever works calls `leave` now and then; any other one interrupts at once. A
    `quiet` one says nothing: another process does.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

    def __init__(self, *, quiet: bool = False) -> None:
        self.asked, self.quiet = 0, quiet
        self._is_patient = False
        self._heard = 0.0
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # only the main thread can listen; elsewhere someone else decides about signals
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.getsignal(number) for number in self.SIGNALS}
            for number, former in self._former.items():
                if former is not signal.SIG_IGN:
                    signal.signal(number, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    @contextmanager
    def wished(self) -> Iterator[None]:
        """Where there is something to lose: a first signal is noted, and waits for `leave`."""
        self._is_patient = True
        try:
            yield
        finally:
            self._is_patient = False

    def leave(self) -> None:
        """Interruption, if that was asked for."""
        if self.asked:
            raise Interruption

    @property
    def status(self) -> Literal["interrupted", "preempted"]:
        """By a person at the keyboard, or by whoever runs the machine."""
        return "interrupted" if self.asked in (0, signal.SIGINT) else "preempted"

    @property
    def code(self) -> int:
        """The exit code by which shells and launchers know that signal."""
        return 128 + (self.asked or signal.SIGINT)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        first, is_echo = not self.asked, number == self.asked and now - self._heard < ECHO
        if is_echo and number != signal.SIGINT:
            return
        self.asked, self._heard = self.asked or number, now
        if not (first and self._is_patient):
            raise KeyboardInterrupt
        if not self.quiet:
            os.write(2, SAID)  # not print: it may have been interrupted in the middle of one
