"""Processes and signals: handlers for a while, children that end with their parent."""

import atexit
import ctypes
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import IO, Any, NoReturn

Handler = Callable[[int, FrameType | None], Any] | signal.Handlers
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that ask a run or a sweep to stop; torchrun passes them on to all ranks."""
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 1.0
# loaded before any fork: loading a library between fork and exec can deadlock
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@contextmanager
def signal_handlers(handler: Handler, numbers: Sequence[int]) -> Iterator[None]:
    """Inside the block, handle these signals with `handler`; restore the former handlers after it.

    A signal that is ignored stays ignored (a shell has background jobs ignore Ctrl-C). Python
    handles signals in the main thread alone; in any other thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.getsignal(number) for number in numbers}
    for number, previous in former.items():
        if previous is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in former.items():
            signal.signal(number, previous)


@contextmanager
def rare_collection() -> Iterator[None]:
    """Inside the block, Python looks for cyclic garbage after 500,000 new objects instead of 700,
    and at the end of the process not at all.

    Imports and plans make a million objects that stay. Looking through them took a fifth of the
    time of importing, and as this process ended, two seconds.
    """
    former = gc.get_threshold()
    gc.set_threshold(500_000)
    atexit.register(_skip_last_collection)
    try:
        yield
    finally:
        gc.set_threshold(*former)


def _skip_last_collection() -> None:
    # Triton, which comes with torch for CUDA, reports each of its objects that stays as a leak
    if "triton" not in sys.modules:
        gc.freeze()


def exit_at_once(code: int) -> NoReturn:
    """Exit without the interpreter's finalization, which torch's communication threads can abort:
    a rank that has finished its work would then count as lost.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def terminate_with_parent(parent: int) -> None:
    """Have this process receive SIGTERM when its parent dies, also by SIGKILL.

    Args:
        parent: the parent's process number, read before anything could have ended it. If it has
            ended by now, this process exits at once.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def start_process(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes], locks: Sequence[int]
) -> "subprocess.Popen[bytes]":
    """Start a child in a session of its own, so that Ctrl-C reaches the parent alone.

    The child receives SIGTERM if the thread that started it ends first (on Linux).

    Args:
        environment: variables to add to this process's own.
        output: an open file for its standard output and errors.
        locks: file descriptors that the child inherits.
    """
    bind = None if _libc is None else partial(terminate_with_parent, os.getpid())
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, **environment},
        pass_fds=locks,
        start_new_session=True,
        preexec_fn=bind,
    )


def _watch_parent(parent: int) -> None:
    """Poll the parent where the system has no signal for its death."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
