"""The server's answers to repeated requests, from memory (the HTTP header `Idempotency-Key`); and
how a request is refused.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable


class Refusal(Exception):
    """A request that gets no scores: an HTTP status, and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


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
