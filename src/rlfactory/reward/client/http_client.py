"""JSON over HTTP with retries: the client that all remote rewards share."""

import ipaddress
import logging
import os
import random
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Any, NoReturn, TypeVar

import httpcore
import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from rlfactory.reward.base import RewardError
from rlfactory.reward.client.protocol import from_json

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


@dataclass(frozen=True)
class RetryPolicy:
    """Timeouts, and exponential backoff with jitter.

    Attributes:
        connect_timeout: Seconds to connect.
        timeout: Seconds for one complete response.
        retries: Attempts after the first one.
        backoff: Seconds before the second attempt; doubled before each further one.
    """

    connect_timeout: float
    timeout: float
    retries: int
    backoff: float

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the failure of attempt 1, 2, ...

        Doubles each time, up to `LONGEST_WAIT`, and is multiplied by a random factor from 0.5 to 1,
        so that clients which failed together do not return together.
        """
        doublings = min(attempt - 1, 60)  # far beyond LONGEST_WAIT; 2.0**1024 would overflow
        longest = min(LONGEST_WAIT, self.backoff * 2.0**doublings)
        return longest * (0.5 + 0.5 * _jitter.random())

    def retrying(self, url: str, stop: Event) -> Retrying:
        """Tenacity's retry loop for calls that raise `_TransientError` or ValueError.

        CallFailed once the attempts are used up, or as soon as `stop` is set during a pause.
        """

        def wait(state: RetryCallState) -> float:
            retry_after = getattr(_error(state), "retry_after", 0.0)
            return min(max(self.pause(state.attempt_number), retry_after), LONGEST_WAIT)

        def sleep(seconds: float) -> None:
            if stop.wait(seconds):
                raise CallFailed("interrupted")

        def report(state: RetryCallState) -> None:
            log.info("%s: %s; again in %.1f s", url, _error(state), state.upcoming_sleep)

        return Retrying(
            retry=retry_if_exception_type((_TransientError, ValueError)),
            stop=stop_after_attempt(self.retries + 1),
            wait=wait,
            sleep=sleep,
            before_sleep=report,
            retry_error_callback=_give_up,
        )


def _error(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _give_up(state: RetryCallState) -> NoReturn:
    error = _error(state)
    raise CallFailed(f"{error} (attempt {state.attempt_number}, the last)") from error


_END = ContextVar[float | None]("end", default=None)
_TIMED = ("connect_tcp", "connect_unix_socket", "read", "write", "start_tls")


@contextmanager
def deadline(seconds: float) -> Iterator[float]:
    """The time at which all that a request does over its connection must have ended.

    httpx limits each read, so that a server which sends a byte of its head now and then is never
    late.
    """
    end = monotonic() + seconds
    token = _END.set(end)
    try:
        yield end
    finally:
        _END.reset(token)


class _Limited:
    """What opens connections, or a connection, for httpcore: its calls obey the deadline."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in _TIMED:
            return method

        def call(*args: Any, timeout: float | None = None, **options: Any) -> Any:
            result = method(*args, timeout=_left(timeout), **options)
            return _Limited(result) if isinstance(result, httpcore.NetworkStream) else result

        return call


def _left(timeout: float | None) -> float | None:
    """The seconds for one call: those of its own limit, or those until the deadline."""
    end = _END.get()
    if end is None:
        return timeout
    left = end - monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("the deadline has passed")
    return left if timeout is None else min(left, timeout)


def _limit(client: httpx.Client) -> None:
    """Let the connections of a client obey `deadline`, also those through proxies."""
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = _Limited(pool._network_backend)


class JsonClient:
    """Sends JSON to the server at `url` and reads JSON back.

    Args:
        url: The server's address; RewardError where it is invalid or holds a secret.
        key: The configuration key of the address, for error messages.
        token_env: The environment variable with the bearer token; no token where it is unset.
        policy: Timeouts and retries.
        concurrency: Simultaneous connections.
    """

    def __init__(
        self, url: str, *, key: str, token_env: str, policy: RetryPolicy, concurrency: int
    ) -> None:
        self.url = _checked_url(url, key)
        self.policy = policy
        self.concurrency = concurrency
        self._client = httpx.Client(
            # compressed, a small answer could become a large one
            headers={**_authorization(token_env), "Accept-Encoding": "identity"},
            follow_redirects=False,  # the token is for the server that was named
            timeout=httpx.Timeout(policy.timeout, connect=policy.connect_timeout),
            limits=httpx.Limits(max_connections=concurrency),
            # a proxy can't reach this machine's own servers
            trust_env=not is_loopback(httpx.URL(self.url).host),
        )
        _limit(self._client)

    def get(self, path: str) -> dict[str, Any]:
        """The JSON object at `path`, in one attempt; CallFailed where it fails."""
        try:
            return self._attempt("GET", path, None, {})
        except _TransientError as error:
            raise CallFailed(str(error)) from error

    def post(
        self, path: str, body: bytes, read: Callable[[dict[str, Any]], T], stop: Event | None = None
    ) -> T:
        """Post `body` to `path` until `read` accepts the response, and return what `read` returns.

        Args:
            path: Appended to the server's address.
            body: JSON. All attempts carry one idempotency key, so that a server can score once.
            read: Parses a response; its ValueError marks a malformed one, which is retried.
            stop: Ends a pause between two attempts at once.

        Raises:
            CallFailed: All attempts failed, the server refused for good, or `stop` was set.
        """
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
        retrying = self.policy.retrying(self.url + path, stop or Event())
        return retrying(lambda: read(self._attempt("POST", path, body, headers)))

    def _attempt(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> dict[str, Any]:
        within = self.policy.timeout
        try:
            with (
                deadline(within) as end,
                self._client.stream(
                    method, self.url + path, content=body, headers=headers
                ) as response,
            ):
                content = bytearray()
                for chunk in response.iter_raw():
                    content += chunk
                    if len(content) > LARGEST_ANSWER:
                        raise _TransientError(f"the answer is longer than {LARGEST_ANSWER} bytes")
        except httpx.TimeoutException as error:
            if monotonic() >= end:
                raise _TransientError(f"no complete answer within {within:g} s") from error
            raise _TransientError(f"no answer in time ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise _TransientError(f"{type(error).__name__}: {error}") from error
        return _parse(response, bytes(content))


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
        raise _TransientError(message, _seconds(response.headers.get("Retry-After")))
    raise CallFailed(message, response.status_code)


def _error_message(content: bytes) -> str:
    """The message of an error response, at most 200 characters."""
    try:
        parsed = from_json(content)
    except ValueError:
        return " ".join(content[:200].decode(errors="replace").split())
    error = parsed.get("error", parsed)
    return str(error.get("message", error) if isinstance(error, dict) else error)[:200]


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and re.fullmatch(r"\d{1,6}", text) else 0.0


def _checked_url(url: str, key: str) -> str:
    """The address without a slash at its end; RewardError where it is invalid or holds a secret."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise RewardError(f"{key}={url} is no address: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise RewardError(f"{key}={url} is no address; one is http://127.0.0.1:8000")
    if parsed.userinfo or parsed.query:
        raise RewardError(f"{key} holds a password or a query, and would be written to the run")
    return url.rstrip("/")


def _authorization(variable: str) -> dict[str, str]:
    token = os.environ.get(variable, "")
    if not re.fullmatch(r"[!-~]*", token):
        raise RewardError(
            f"{variable} holds a token with spaces or characters that a header can't hold"
        )
    return {"Authorization": f"Bearer {token}"} if token else {}


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def in_threads(
    ask: Callable[[int, Event], T], count: int, concurrency: int
) -> Sequence[T | CallFailed]:
    """`ask(i, stop)` for each `i < count`, at most `concurrency` at once.

    Returns:
        The results in order, with the CallFailed of each call that raised one in its position.

    `stop` is set where the caller is interrupted (KeyboardInterrupt), so that no thread waits for
    another attempt.
    """
    stop = Event()

    def call(number: int) -> T | CallFailed:
        if stop.is_set():
            return CallFailed("interrupted")
        try:
            return ask(number, stop)
        except CallFailed as error:
            return error

    with ThreadPoolExecutor(max(1, min(concurrency, count))) as pool:
        try:
            return list(pool.map(call, range(count)))
        except BaseException:
            stop.set()
            raise
