"""One time limit for a whole request over HTTP: connecting, sending, the head and the body.

httpx limits each read, so that a server which sends a byte of its head now and then is never late.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any

import httpcore
import httpx

_END = ContextVar[float | None]("end", default=None)


@contextmanager
def deadline(seconds: float) -> Iterator[float]:
    """The time at which reads and writes within the `with` must have ended."""
    end = monotonic() + seconds
    token = _END.set(end)
    try:
        yield end
    finally:
        _END.reset(token)


def limit(client: httpx.Client) -> None:
    """Let the connections of a client obey `deadline`, also those through proxies."""
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = _Backend(pool._network_backend)


def _left(timeout: float | None) -> float | None:
    """The seconds for one read: those of its own limit, or those until the deadline."""
    end = _END.get()
    if end is None:
        return timeout
    left = end - monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("the deadline has passed")
    return left if timeout is None else min(left, timeout)


class _Backend(httpcore.NetworkBackend):
    """Opens connections whose reads and writes obey the deadline."""

    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(
            self._backend.connect_tcp(host, port, _left(timeout), local_address, socket_options)
        )

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_unix_socket(path, _left(timeout), socket_options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    """A connection that obeys the deadline."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
