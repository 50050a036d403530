"""The HTTP application: `GET /health` describes the reward, `POST /score` scores samples; repeated
requests (the HTTP header `Idempotency-Key`) are answered from memory.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, declared_better, score_checked
from rlfactory.reward.client.protocol import (
    PROTOCOL,
    ProtocolError,
    encode_scores,
    from_json,
    read_request,
    to_json,
)
from rlfactory.tools.serve.settings import ServeSettings
from rlfactory.utils.workers import WorkerThread

log = logging.getLogger(__name__)
READERS = 2
"""Threads that decode requests, while another one scores."""
LONGEST_KEY = 200
"""Characters of an idempotency key."""


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

        HTTPException (422) where that was for a body with another `digest`.
        """
        if key is None or not self.count:
            return await work()
        if key in self._answers:
            known, answer = self._answers[key]
            if known != digest:
                raise HTTPException(422, "this idempotency key belongs to another request")
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


class Service:
    """The request handlers of a reward: decode, score one after the other, cache answers."""

    def __init__(self, reward: Reward, settings: ServeSettings) -> None:
        self.reward = reward
        self.settings = settings
        self.keys = tuple(reward.metadata)
        self.names = {reward.main: None}
        self.answers = AnswerCache(settings.kept)
        self.readers = ThreadPoolExecutor(READERS, "readers")
        self.scorer = WorkerThread("rewards")  # one, since models are not thread-safe

    async def health(self, request: Request) -> Response:
        """Describe the reward; further score names are known once samples were scored."""
        return _json(
            {
                "protocol": PROTOCOL,
                "media": self.reward.media,
                "main": self.reward.main,
                "scores": [*self.names],
                "good": self.reward.best_score,
                "better": dict(declared_better(self.reward)),
                "metadata": [*self.keys],
                "max_samples": self.settings.max_samples,
            }
        )

    async def score(self, request: Request) -> Response:
        """Score the samples in the body."""
        key = request.headers.get("Idempotency-Key")
        if key is not None and len(key) > LONGEST_KEY:
            raise HTTPException(400, f"an idempotency key has at most {LONGEST_KEY} characters")
        body = await self._body(request)
        digest = hashlib.sha256(body).digest()
        return _answer(await self.answers.once(key, digest, lambda: self._scored(body)))

    async def _body(self, request: Request) -> bytes:
        """The body; HTTPException if it is too slow, or as soon as it is known to be too long."""
        max_bytes = int(self.settings.max_body_mb * 2**20)
        too_long = HTTPException(413, f"a request has at most {self.settings.max_body_mb:g} MiB")
        stated = request.headers.get("Content-Length", "0")
        if not stated.isdecimal() or int(stated) > max_bytes:
            raise too_long
        body = bytearray()
        try:
            async with asyncio.timeout(self.settings.timeout):
                async for part in request.stream():
                    if len(body) + len(part) > max_bytes:
                        raise too_long
                    body += part
        except TimeoutError:
            message = f"no complete request in {self.settings.timeout:g} s"
            raise HTTPException(408, message) from None
        return bytes(body)

    async def _scored(self, body: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        samples = await loop.run_in_executor(self.readers, self._read, body)
        scores = await asyncio.wrap_future(self.scorer.submit(lambda: self._scores(samples)))
        self.names |= dict.fromkeys(scores)
        return to_json(encode_scores(scores))

    def _scores(self, samples: Samples) -> dict[str, Tensor]:
        """The reward's scores; an HTTPException if it raises."""
        try:
            return score_checked(self.reward, samples)
        except BaseException as error:  # sys.exit() in a reward must not end the thread
            log.error("the reward failed", exc_info=error)
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise HTTPException(500, f"the reward raised {reason}") from error

    def _read(self, body: bytes) -> Samples:
        """The samples of a body; an HTTPException if it is malformed or too large."""
        code, samples, most = 400, self.settings.max_samples, self.settings.max_megapixels
        try:
            message, code = from_json(body), 422
            request = read_request(message, self.reward.media, self.keys)
            if len(request.prompts) > samples:
                raise HTTPException(413, f"a request has at most {samples} samples")
            if request.pixels > 1e6 * most:
                limit = f"the images of a request have at most {most:g} megapixels"
                raise HTTPException(413, limit)
            return request.samples()
        except ProtocolError as error:
            raise HTTPException(code, str(error)) from error

    @asynccontextmanager
    async def running(self, app: Starlette) -> AsyncIterator[None]:
        """The lifespan of the application, which ends once all requests are answered."""
        yield
        self.readers.shutdown(wait=False, cancel_futures=True)
        self.scorer.end()


def application(reward: Reward, settings: ServeSettings, token: str) -> ASGIApp:
    """The ASGI application; every request must have `token`, unless that is empty."""
    service = Service(reward, settings)
    routes = [
        Route("/health", service.health, methods=["GET"]),
        Route("/score", service.score, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {HTTPException: _refused, ClientDisconnect: _left}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=service.running)
    app.router.redirect_slashes = False
    return _with_token(app, token) if token else app


def _with_token(app: ASGIApp, token: str) -> ASGIApp:
    """An application that answers 401 to requests without the bearer token."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        is_known = hmac.compare_digest(given, f"Bearer {token}".encode())
        refusal = _json({"error": "a bearer token is needed"}, 401)
        await (refusal if scope["type"] == "http" and not is_known else app)(scope, receive, send)

    return checked


async def _refused(request: Request, error: HTTPException) -> Response:
    unrouted = "; there are GET /health and POST /score" if error.status_code in (404, 405) else ""
    return _json({"error": f"{error.detail}{unrouted}"}, error.status_code, error.headers)


async def _left(request: Request, error: ClientDisconnect) -> Response:
    """An answer is required, though no client reads it."""
    return _json({"error": "the client has left"}, 400)


def _json(message: object, status: int = 200, headers: Any = None) -> Response:
    return _answer(to_json(message), status, headers)


def _answer(body: bytes, status: int = 200, headers: Any = None) -> Response:
    return Response(body, status, headers, media_type="application/json")
