"""Connections that do not wait for ever for somebody who says nothing, or says it very slowly."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """Closed where a request has not begun within uvicorn's `timeout_keep_alive` seconds.

    Uvicorn waits without end for the first byte, and for the rest of a head that has begun; after
    an answer it reads on without end what an oversized request still sends.
    """

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait no longer once the head of a request is there; after its answer, wait anew."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._patience is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop()
        self._patience = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def _stop(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
