"""Asking a server over HTTP, and asking again: what the rewards that live elsewhere share."""

import ipaddress
import logging
import os
import random
import re
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Any, TypeVar

import httpx

from rlfactory.reward.base import RewardError
from rlfactory.reward.wire import from_json

T = TypeVar("T")
log = logging.getLogger(__name__)

LONGEST_WAIT = 30.0
"""Seconds between two attempts, at most."""
LARGEST_ANSWER = 2**25
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


class CallFailed(Exception):
    """No answer was had, for the reason that the message gives; `status` where one was given."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _Passing(Exception):
    """What may be otherwise at the next attempt, after `wait` seconds."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class Patience:
    """Seconds to connect and to answer; attempts after the first, and the pause before these.

    The pause doubles each time, up to `LONGEST_WAIT`, and is shortened by chance to a half of it
    at least, so that clients which failed together do not come back together.
    """

    connect_timeout: float
    timeout: float
    retries: int
    backoff: float

    def pause(self, attempt: int) -> float:
        """Seconds before attempt 1, 2, ..."""
        longest = min(LONGEST_WAIT, self.backoff * 2.0 ** (attempt - 1))
        return longest * (0.5 + 0.5 * _chance.random())


_chance = random.Random()  # the run's own random numbers are not touched


class Server:
    """JSON to and from the server at `url`, asked by at most `concurrency` threads at once.

    `key` names the option in errors; the token is read from the environment variable `token_env`.
    """

    def __init__(
        self, url: str, *, key: str, token_env: str, patience: Patience, concurrency: int
    ) -> None:
        self.url = _checked(url, key)
        self.patience = patience
        self.concurrency = concurrency
        self._client = httpx.Client(
            headers=_authorization(token_env),
            timeout=httpx.Timeout(patience.timeout, connect=patience.connect_timeout),
            limits=httpx.Limits(max_connections=concurrency),
            trust_env=not is_loopback(httpx.URL(self.url).host),  # a proxy can't reach this machine
        )

    def get(self, path: str) -> dict[str, Any]:
        """One attempt; CallFailed where it fails."""
        try:
            return self._attempt("GET", path, None, {})
        except _Passing as error:
            raise CallFailed(str(error)) from error

    def post(
        self, path: str, body: bytes, read: Callable[[dict[str, Any]], T], stop: Event | None = None
    ) -> T:
        """What `read` makes of the answer; it raises ValueError of one that is nonsense.

        Attempts share an idempotency key, by which a server knows them for one request. CallFailed
        where all failed, the server refuses for good, or `stop` is set meanwhile.
        """
        stop = stop or Event()
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
        attempt = 0
        while True:
            try:
                return read(self._attempt("POST", path, body, headers))
            except (_Passing, ValueError) as error:
                attempt += 1
                if attempt > self.patience.retries:
                    raise CallFailed(f"{error} (attempt {attempt}, the last)") from error
                wait = max(self.patience.pause(attempt), getattr(error, "wait", 0.0))
                log.info("%s%s: %s; again in %.1f s", self.url, path, error, wait)
                if stop.wait(min(wait, LONGEST_WAIT)):
                    raise CallFailed("interrupted") from error

    def _attempt(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> dict[str, Any]:
        deadline = monotonic() + self.patience.timeout
        try:
            with self._client.stream(
                method, self.url + path, content=body, headers=headers
            ) as answer:
                content = bytearray()
                for part in answer.iter_bytes():
                    content += part
                    if len(content) > LARGEST_ANSWER:
                        raise _Passing(f"the answer is longer than {LARGEST_ANSWER} bytes")
                    if monotonic() > deadline:
                        raise _Passing(f"no whole answer within {self.patience.timeout:g} s")
        except httpx.TimeoutException as error:
            raise _Passing(f"no answer in time ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise _Passing(f"{type(error).__name__}: {error}") from error
        return _content(answer, bytes(content))


def _content(answer: httpx.Response, content: bytes) -> dict[str, Any]:
    """The JSON of a good answer; CallFailed or _Passing, with what the server said, of others."""
    if answer.status_code == 200:
        return from_json(content)
    said = f"the server says {answer.status_code}: {_message(content)}"
    if answer.status_code in _TRANSIENT:
        raise _Passing(said, _seconds(answer.headers.get("Retry-After")))
    raise CallFailed(said, answer.status_code)


def _message(content: bytes) -> str:
    try:
        found = from_json(content)
    except ValueError:
        return " ".join(content[:200].decode(errors="replace").split())
    error = found.get("error", found)
    return str(error.get("message", error) if isinstance(error, dict) else error)[:200]


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and re.fullmatch(r"\d{1,6}", text) else 0.0


def _checked(url: str, key: str) -> str:
    """The address without a slash at its end; RewardError where it is none, or holds a secret."""
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise RewardError(f"{key}={url} is no address: {error}") from error
    if found.scheme not in ("http", "https") or not found.host:
        raise RewardError(f"{key}={url} is no address; one is http://127.0.0.1:8000")
    if found.userinfo or found.query:
        raise RewardError(f"{key} holds a password or a query, and would be written to the run")
    return url.rstrip("/")


def _authorization(variable: str) -> dict[str, str]:
    token = os.environ.get(variable, "")
    if not re.fullmatch(r"[!-~]*", token):
        raise RewardError(f"{variable} holds a token with spaces or signs that no header can have")
    return {"Authorization": f"Bearer {token}"} if token else {}


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its very name."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def in_threads(
    ask: Callable[[int, Event], T], count: int, concurrency: int
) -> Sequence[T | CallFailed]:
    """`ask(i, stop)` for each i below `count`, some at once, in order; failures stand in place.

    `stop` is set where the caller is interrupted, so that nobody waits for the next attempt.
    """
    stop = Event()

    def one(number: int) -> T | CallFailed:
        if stop.is_set():
            return CallFailed("interrupted")
        try:
            return ask(number, stop)
        except CallFailed as error:
            return error

    with ThreadPoolExecutor(max(1, min(concurrency, count))) as pool:
        try:
            return list(pool.map(one, range(count)))
        except BaseException:
            stop.set()
            raise
