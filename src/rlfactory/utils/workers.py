"""Calls of code that may never return or may end its process: in a thread, in a process.

Both are waited for no longer than told, and neither keeps this process alive.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from multiprocessing import get_context, parent_process
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Any, TypeVar
from weakref import finalize

T = TypeVar("T")
_Calls = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class WorkerThread:
    """Makes calls one after the other in a daemon thread, which no exit waits for, and which ends
    once nothing refers to this object and its calls are made.

    Args:
        name: of the thread.
        prepare: called in the thread before anything else.

    Attributes:
        is_stuck: a call has not returned in its time, so that no further one would be made.
    """

    def __init__(self, name: str, prepare: Callable[[], None] | None = None) -> None:
        self.is_stuck = False
        self._ended, self._calls = Event(), _Calls()
        # no method of this object, which would never be collected then
        own = (self._calls, self._ended, prepare)
        self._thread = Thread(target=_make_calls, args=own, name=name, daemon=True)
        finalize(self, self._calls.put, None)

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """The future result of a call, which begins once those before it have returned."""
        if self._thread.ident is None:
            self._thread.start()
        future: Future[T] = Future()
        self._calls.put((future, work))
        return future

    def call(self, work: Callable[[], T], seconds: float) -> T:
        """The result of a call.

        Raises:
            TimeoutError: it has not returned within this time, or an earlier one has not.
            BaseException: what it raised.
        """
        if not self.is_stuck:
            future = self.submit(work)
            if wait([future], seconds).done:
                return future.result()
            self.is_stuck = True
        raise TimeoutError(f"no answer within {seconds:g} s")

    def end(self) -> None:
        """Begin no further call."""
        self._ended.set()
        self._calls.put(None)


def _make_calls(calls: _Calls, ended: Event, prepare: Callable[[], None] | None) -> None:
    if prepare is not None:
        prepare()
    while (call := calls.get()) is not None and not ended.is_set():
        future, work = call
        try:
            future.set_result(work())
        except BaseException as error:  # raised again by `Future.result`
            future.set_exception(error)
        del call, future, work  # else they stay in memory while the thread waits


class WorkerProcess:
    """A process that answers what it is sent through a pipe.

    It is forked off multiprocessing's fork server, which has imported torch only: faster than a new
    interpreter, and unlike a fork of this process without its GPU state and its threads.

    Args:
        serve: called in the process with its end of the pipe and the arguments; its module is
            imported once, by the fork server.
        arguments: picklable.
    """

    def __init__(self, serve: Callable[..., None], *arguments: object) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([serve.__module__])
        self._pipe, their_end = context.Pipe()
        own = (serve, their_end, *arguments)
        self._process = context.Process(target=_serve, args=own, daemon=True)
        self._process.start()
        their_end.close()  # so that reading from a process that died raises EOFError

    def send(self, value: object) -> None:
        """Send a value; nothing to a process that died, as `receive` will find out."""
        with suppress(OSError):
            self._pipe.send(value)

    def receive(self, end: float | None = None) -> Any:
        """The next answer.

        Raises:
            TimeoutError: there is none at the time `end` of `time.monotonic`.
            EOFError, OSError: the process died.
        """
        if end is not None and not self._pipe.poll(max(end - monotonic(), 0)):
            raise TimeoutError
        return self._pipe.recv()

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(serve: Callable[..., None], *arguments: object) -> None:
    """Serve, and end with the process that asks, also by SIGKILL: code that never returns reads no
    end of the pipe, and the fork server, which `terminate_with_parent` would follow, lives as long
    as this process.
    """
    Thread(target=_exit_after_parent, daemon=True).start()
    serve(*arguments)


def _exit_after_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(128 + signal.SIGTERM)


class WorkerDied(Exception):
    """The process ended, or was killed, before it answered."""


class LineWorker:
    """Runs a Python file that answers each line of JSON with one, and limits its own time.

    The process is started when it is first asked, and anew when it has died. It ends with this
    one, whose end closes its input.

    Args:
        program: the file.
        first: a line that each new process gets first.
    """

    def __init__(self, program: Path, first: object) -> None:
        self._program, self._first = program, first
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: object) -> Any:
        """The answer to a question; WorkerDied where there is none."""
        if self._process is None:
            # -P: the program's folder does not come before installed packages
            self._process = start_program(self._program, ["-P"])
            self._write(self._first)
        self._write(question)
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            status = self._process.wait()
            self.close()
            raise WorkerDied(f"exit status {status}")
        return json.loads(answer)

    def _write(self, value: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # reading from it says so too
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            kill_session(self._process)
            self._process = None


def start_program(program: Path, flags: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a Python file, with pipes, in a session of its own: Ctrl-C reaches this process alone.

    `flags` are those of the interpreter, `options` those of `subprocess.Popen`.
    """
    return subprocess.Popen(
        [sys.executable, *flags, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **options,
    )


def kill_session(process: "subprocess.Popen[bytes]") -> bytes:
    """Kill what `start_program` started with all of its children; returns what it wrote."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    return process.communicate()[0]
