"""The latest answers, for those who ask again because the first answer did not reach them."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from rlfactory.serve.refusal import Refusal


class Answers:
    """At most `count` answers of at most `size` bytes in all, by idempotency key.

    A request that is being worked on has its place here too, so that it is never scored twice;
    one that failed has none, so that it may be tried again.
    """

    def __init__(self, count: int, size: int = 2**26) -> None:
        self.count = count
        self.size = size
        self._bytes = 0
        self._tasks: OrderedDict[str, tuple[bytes, asyncio.Task[bytes]]] = OrderedDict()

    async def once(
        self, key: str | None, digest: bytes, work: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """The answer of `work`, or the one that `key` was given before; a Refusal where that was
        for a body with another `digest`.
        """
        if key is None or not self.count:
            return await work()
        if key in self._tasks:
            known, task = self._tasks[key]
            if known != digest:
                raise Refusal(422, "this idempotency key belongs to another request")
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
