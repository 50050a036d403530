"""What happened between host and device: waits, copies and collectives, with their place in src/.

`wait`: the host stands still until the device has done all that was queued. A copy from or to
pageable memory is one of them; one from or to pinned memory is not, if it is `non_blocking`.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import rlfactory

PACKAGE = str(Path(rlfactory.__file__).parent)
HERE = str(Path(__file__).parent)
TORCH = "/site-packages/torch/"

READ = "read"  # .item(), bool(), float(), .tolist()
SIZE = "size"  # a result's shape depends on values: nonzero, boolean indices, unique
SYNCHRONIZE = "synchronize"  # of a device, a stream or an event
UPLOAD, DOWNLOAD = "upload (pageable)", "download (pageable)"
PINNED_WAIT = "copy (pinned, blocking)"
PINNED = "copy (pinned)"
WAITS = {READ, SIZE, SYNCHRONIZE, UPLOAD, DOWNLOAD, PINNED_WAIT}
PAGEABLE = {UPLOAD, DOWNLOAD}
GPU_COLLECTIVE, CPU_COLLECTIVE = "NCCL", "gloo"


@dataclass(frozen=True)
class Event:
    """Something that happened: in which phase of the loop, what, by which operator, and where."""

    phase: str
    kind: str
    what: str
    place: str

    @property
    def is_wait(self) -> bool:
        return self.kind in WAITS

    @property
    def is_pageable(self) -> bool:
        return self.kind in PAGEABLE


class Ledger:
    """Counts events; each is of the phase that was entered last, in whichever thread it happens,
    as backward passes run in a thread of their own. Threads that the program started (rewards,
    checkpoints) are a phase by themselves: nobody in the loop waits with them.
    """

    def __init__(self) -> None:
        self.events: Counter[Event] = Counter()
        self.phase = "build"

    def record(self, kind: str, what: str) -> None:
        """Count an event of the present phase."""
        name = threading.current_thread().name
        # backward threads are C++'s own ("Dummy-N" to Python)
        is_ours = name == "MainThread" or name.startswith("Dummy")
        self.events[Event(self.phase if is_ours else "other thread", kind, what, place())] += 1

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """What happens within belongs to `phase`."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before


def place() -> str:
    """The innermost line of our package on the stack; else of another one; else the backward."""
    other = None
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            return f"{name.removeprefix(PACKAGE + '/')}:{frame.f_lineno}"
        is_machinery = name.startswith((HERE, "<")) or TORCH in name or "/threading.py" in name
        if other is None and not is_machinery:
            other = f"{name.rsplit('site-packages/')[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return other or "backward pass"


LEDGER = Ledger()
