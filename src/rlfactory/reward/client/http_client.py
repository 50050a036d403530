"""Rewards that ask a server: JSON over HTTP with retries."""

import asyncio
import ipaddress
import logging
import os
import random
import re
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

import httpx
from anyio.from_thread import start_blocking_portal
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt

from rlfactory.reward.base import Reward, RewardError
from rlfactory.reward.client.protocol import from_json
from rlfactory.utils.types import NonNegativeInt, Positive, PositiveInt

T = TypeVar("T")
log = logging.getLogger(__name__)

LONGEST_WAIT = 30.0
"""Seconds between two attempts, at most."""
LARGEST_ANSWER = 2**25
"""Bytes of a response, at most."""
_TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}
_jitter = random.Random()  # a generator of its own: the run's random state stays untouched


class CallFailed(Exception):
    """A request that got no usable response; `status` is the HTTP status, if there was one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _TransientError(Exception):
    """A failure that another attempt may cure; `retry_after` is the server's header, in seconds."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class HttpReward(Reward):
    """A reward that the server at `url` computes.

    A subclass names the environment variable with the server's token to `authorize`. RewardError
    where the address is invalid or holds a secret.
    """

    def __init__(
        self,
        *,
        url: str,
        concurrency: PositiveInt = 4,
        connect_timeout: Positive = 5,
        timeout: Positive = 120,
        retries: NonNegativeInt = 5,
        backoff: Positive = 0.5,
    ) -> None:
        """
        Args:
            url: http://HOST:PORT.
            concurrency: Simultaneous requests.
            connect_timeout: > 0: seconds to connect.
            timeout: > 0: seconds for one answer.
            retries: Attempts after the first; then the request's samples count as failed.
            backoff: > 0: seconds before the second attempt, doubled before each further one.
        """
        self.url = _checked_url(url)
        self.concurrency, self.timeout, self.backoff = concurrency, timeout, backoff
        self.attempts = retries + 1
        # compressed, a small answer could become a large one
        self.headers = {"Accept-Encoding": "identity"}
        # a proxy can't reach this machine's own servers
        trust_env = not is_loopback(httpx.URL(self.url).host)
        self._options: dict[str, Any] = {
            "follow_redirects": False,  # the token is for the server that was named
            "timeout": httpx.Timeout(None, connect=connect_timeout),  # `_attempt` limits the whole
            "limits": httpx.Limits(max_connections=concurrency),
            "trust_env": trust_env,
            "verify": httpx.create_ssl_context(trust_env=trust_env),
        }

    def authorize(self, variable: str) -> None:
        """Send the token in an environment variable, if it is set."""
        token = os.environ.get(variable, "")
        if not re.fullmatch(r"[!-~]*", token):
            raise RewardError(
                f"{variable} holds a token with spaces or characters that a header can't hold"
            )
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str) -> dict[str, Any]:
        """The JSON object at `path`, in one attempt; CallFailed where it fails."""
        try:
            return self._run(lambda client: self._attempt(client, "GET", path))
        except _TransientError as error:
            raise CallFailed(str(error)) from error

    def post_each(
        self,
        path: str,
        count: int,
        body: Callable[[int], bytes],
        read: Callable[[int, dict[str, Any]], T],
    ) -> list[T | CallFailed]:
        """Post the JSON `body(i)` of each i below `count` to `path` on the server, `concurrency` at
        once, each until `read` accepts a response: its ValueError marks a malformed one, which is
        retried. All attempts carry one idempotency key, so that a server can score once.

        Returns what `read` returned, in order; a CallFailed where all attempts failed or the server
        refused for good.
        """

        async def post(client: httpx.AsyncClient) -> list[T | CallFailed]:
            free = asyncio.Semaphore(self.concurrency)

            async def one(number: int) -> T | CallFailed:
                async with free:
                    content = await asyncio.to_thread(body, number)
                    return await self._post(client, path, content, partial(read, number))

            return await asyncio.gather(*map(one, range(count)))

        return self._run(post)

    async def _post(
        self,
        client: httpx.AsyncClient,
        path: str,
        content: bytes,
        read: Callable[[dict[str, Any]], T],
    ) -> T | CallFailed:
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}

        async def attempt() -> T:
            return read(await self._attempt(client, "POST", path, content, headers))

        try:
            return await self._retrying(self.url + path)(attempt)
        except CallFailed as error:
            return error

    def _run(self, work: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
        """The result of `work`, in an event loop and thread of its own, which end with this call
        also where it is interrupted.
        """

        async def run() -> T:
            async with httpx.AsyncClient(headers=self.headers, **self._options) as client:
                return await work(client)

        with start_blocking_portal() as portal:
            return portal.call(run)

    def _retrying(self, url: str) -> AsyncRetrying:
        """Tenacity's retry loop for calls that raise `_TransientError` or ValueError."""

        def report(state: RetryCallState) -> None:
            log.info("%s: %s; again in %.1f s", url, _error(state), state.upcoming_sleep)

        return AsyncRetrying(
            retry=retry_if_exception_type((_TransientError, ValueError)),
            stop=stop_after_attempt(self.attempts),
            wait=self.pause,
            before_sleep=report,
            retry_error_callback=_give_up,
        )

    def pause(self, state: RetryCallState) -> float:
        """Seconds to wait after the failure of an attempt.

        Doubles each time, up to `LONGEST_WAIT`, and is multiplied by a random factor from 0.5 to 1,
        so that clients which failed together do not return together.
        """
        doublings = min(state.attempt_number - 1, 60)  # 2.0**1024 would overflow
        longest = min(LONGEST_WAIT, self.backoff * 2.0**doublings)
        pause = longest * (0.5 + 0.5 * _jitter.random())
        return min(max(pause, getattr(_error(state), "retry_after", 0.0)), LONGEST_WAIT)

    async def _attempt(
        self,
        client: httpx.AsyncClient,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        content = bytearray()
        try:
            async with (
                asyncio.timeout(self.timeout),
                client.stream(method, self.url + path, content=body, headers=headers) as response,
            ):
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > LARGEST_ANSWER:
                        raise _TransientError(f"the answer is longer than {LARGEST_ANSWER} bytes")
        except TimeoutError as error:
            raise _TransientError(f"no complete answer within {self.timeout:g} s") from error
        except httpx.TimeoutException as error:
            raise _TransientError(f"no answer in time ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise _TransientError(f"{type(error).__name__}: {error}") from error
        return _parse(response, bytes(content))


def _error(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _give_up(state: RetryCallState) -> NoReturn:
    error = _error(state)
    raise CallFailed(f"{error} (attempt {state.attempt_number}, the last)") from error


def _parse(response: httpx.Response, content: bytes) -> dict[str, Any]:
    """The JSON object of a 200 response; other statuses raise CallFailed or _TransientError."""
    if response.status_code == 200:
        return from_json(content)
    if response.has_redirect_location:
        place = response.headers["Location"][:200]
        message = f"the server says {response.status_code}: ask {place!r}, which is not followed"
        raise CallFailed(message, response.status_code)
    message = f"the server says {response.status_code}: {_error_message(content)}"
    if response.status_code in _TRANSIENT_STATUSES:
        after = response.headers.get("Retry-After", "")
        raise _TransientError(message, float(after) if re.fullmatch(r"\d{1,6}", after) else 0.0)
    raise CallFailed(message, response.status_code)


def _error_message(content: bytes) -> str:
    """The message of an error response, at most 200 characters."""
    try:
        parsed = from_json(content)
    except ValueError:
        return " ".join(content[:200].decode(errors="replace").split())
    error = parsed.get("error", parsed)
    return str(error.get("message", error) if isinstance(error, dict) else error)[:200]


def _checked_url(url: str) -> str:
    """The address without a slash at its end; RewardError where it is invalid or holds a secret."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise RewardError(f"reward.url={url} is no address: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise RewardError(f"reward.url={url} is no address; one is http://127.0.0.1:8000")
    if parsed.userinfo or parsed.query:
        raise RewardError("reward.url holds a password or a query, and would be written to the run")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
