"""Calls of code that may never return or may end its process: in a thread, in a process.

Both are waited for no longer than told, and neither keeps this process alive.
"""

from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """Makes calls one after the other in a daemon thread; which no exit waits for.

    Args:
        name: of the thread.
        prepare: called in the thread before anything else.

    Attributes:
        is_stuck: a call has not returned in its time, so that no further one would be made.
    """

    def __init__(self, name: str, prepare: Callable[[], None] | None = None) -> None:
        self.is_stuck = self._ended = False
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._prepare = prepare
        self._thread = Thread(target=self._work, name=name, daemon=True)

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """The future result of a call, which begins once those before it have returned."""
        if self._thread.ident is None:
            self._thread.start()
        future: Future[T] = Future()
        self._calls.put((future, work))
        return future

    def call(self, work: Callable[[], T], seconds: float) -> T:
        """What a call returns.

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
        self._ended = True
        self._calls.put(None)

    def _work(self) -> None:
        if self._prepare is not None:
            self._prepare()
        while (call := self._calls.get()) is not None and not self._ended:
            future, work = call
            try:
                future.set_result(work())
            except BaseException as error:  # raised again by `Future.result`
                future.set_exception(error)
            del call, future, work  # else they stay in memory while the thread waits
