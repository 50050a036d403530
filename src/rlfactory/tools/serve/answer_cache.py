"""The server's answers to repeated requests, from memory (the HTTP header `Idempotency-Key`); and
how a request is refused.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Refusal(Exception):
    """A request that gets no scores: an HTTP status, and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class AnswerCache:
    """The latest answers by idempotency key, at most `count`.

    A request in progress has an entry too, so that its repetition is not scored a second time. One
    that failed has none, so that it may be tried again.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._answers: dict[str, tuple[bytes, asyncio.Future[bytes]]] = {}

    async def once(
        self, key: str | None, digest: bytes, work: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """The answer of `work`, or the one that `key` got before.

        Refusal (422) where that was for a body with another `digest`.
        """
        if key is None or not self.count:
            return await work()
        if key in self._answers:
            known, answer = self._answers[key]
            if known != digest:
                raise Refusal(422, "this idempotency key belongs to another request")
        else:
            answer = asyncio.ensure_future(work())
            self._answers[key] = digest, answer
            answer.add_done_callback(lambda done: self._finished(key, done))
        # shielded: a client that disconnects must not cancel what another one waits for
        return await asyncio.shield(answer)

    def _finished(self, key: str, answer: "asyncio.Future[bytes]") -> None:
        if answer.cancelled() or answer.exception() is not None:
            del self._answers[key]
        ended = [k for k, (_, other) in self._answers.items() if other.done()]
        for oldest in ended[: max(len(ended) - self.count, 0)]:
            del self._answers[oldest]
