"""Calls of code that may never return: in a thread of its own, waited for no longer than told."""

import queue
import threading
from collections.abc import Callable
from typing import Any

Answer = tuple[Any, BaseException | None]


class BoundedCalls:
    """Makes calls one after the other in one thread, which never keeps the process alive.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self.is_stuck = False
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Answer]]] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __call__(self, call: Callable[[], Any], seconds: float) -> Any:
        """What `call` returns.

        Raises:
            TimeoutError: it has not returned within this time, or an earlier one has not.
            BaseException: what it raised.
        """
        if not self.is_stuck and not self._thread.is_alive():
            self._thread.start()
        answer: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        try:
            if self.is_stuck:
                raise queue.Empty
            self._calls.put((call, answer))
            value, error = answer.get(timeout=seconds)
        except queue.Empty:
            self.is_stuck = True
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        if error is not None:
            raise error
        return value

    def _work(self) -> None:
        while True:
            call, answer = self._calls.get()
            try:
                answer.put((call(), None))
            except BaseException as error:  # raised again where it was asked for
                answer.put((None, error))
