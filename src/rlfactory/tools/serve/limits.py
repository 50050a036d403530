"""Limits of the server: how requests are refused, and what they may take in memory and in time.

`MemoryLimit` bounds what all requests hold together. `AnswerCache` answers a repeated request from
memory (the HTTP header `Idempotency-Key`). `ImpatientConnection` closes those of slow clients.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class Refusal(Exception):
    """A request that gets no scores: an HTTP status, a message, and seconds until a retry helps."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


class MemoryLimit:
    """At most `size` bytes, held by all requests in progress together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self._lock = Lock()

    @contextmanager
    def lease(self) -> Iterator[Callable[[int], None]]:
        """A function that holds more bytes for one request, until the end of the `with`.

        It raises Refusal (503) where fewer are left.
        """
        held = 0

        def acquire(count: int) -> None:
            nonlocal held
            with self._lock:
                if self.used + count > self.size:
                    message = "the server has no memory left for now"
                    raise Refusal(503, message, retry_after=1)
                self.used += count
                held += count

        try:
            yield acquire
        finally:
            with self._lock:
                self.used -= held


class AnswerCache:
    """The latest answers by idempotency key: at most `count`, of at most `size` bytes together.

    A request in progress has an entry too, so that its repetition is not scored a second time. One
    that failed has none, so that it may be tried again.
    """

    def __init__(self, count: int, size: int = 2**26) -> None:
        self.count = count
        self.size = size
        self._bytes = 0
        self._tasks: OrderedDict[str, tuple[bytes, asyncio.Task[bytes]]] = OrderedDict()

    async def once(
        self, key: str | None, digest: bytes, work: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """The answer of `work`, or the one that `key` got before.

        Refusal (422) where that was for a body with another `digest`.
        """
        if key is None or not self.count:
            return await work()
        if key in self._tasks:
            known, task = self._tasks[key]
            if known != digest:
                raise Refusal(422, "this idempotency key belongs to another request")
            # shielded: a client that disconnects must not cancel what another one waits for
            return await asyncio.shield(task)
        task = asyncio.ensure_future(_run(work))
        self._tasks[key] = digest, task
        task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task)

    def _finished(self, key: str, task: "asyncio.Task[bytes]") -> None:
        if task.cancelled() or task.exception() is not None:
            del self._tasks[key]
            return
        self._bytes += len(task.result())
        ended = [k for k, (_, t) in self._tasks.items() if t.done()]
        while ended and (len(ended) > self.count or self._bytes > self.size):
            _, oldest = self._tasks.pop(ended.pop(0))
            self._bytes -= len(oldest.result())


async def _run(work: Callable[[], Awaitable[bytes]]) -> bytes:
    return await work()


class ImpatientConnection(H11Protocol):
    """Closes a connection on which no request begins within uvicorn's `timeout_keep_alive` seconds.

    Uvicorn waits without limit for the first byte, and for the rest of a head that has begun; after
    an answer it reads on without limit what an oversized request still sends.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer; close one connection too many, which would take an open file."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            transport.abort()
            return
        self._start()

    def data_received(self, data: bytes) -> None:
        """Stop the timer once the head of a request is there; start it again after its answer."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._timer is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._stop()
        self._timer = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
