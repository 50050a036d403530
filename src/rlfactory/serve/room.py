"""A bound on the memory that requests take together."""

from threading import Lock
from types import TracebackType

from rlfactory.serve.refusal import Refusal


class Room:
    """`size` bytes, of which requests in progress hold some."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self._lock = Lock()

    def take(self, count: int) -> None:
        """Hold that many more; a Refusal where there are not as many left."""
        with self._lock:
            if self.used + count > self.size:
                raise Refusal(503, "the server has no memory left for now", retry_after=1)
            self.used += count

    def give(self, count: int) -> None:
        """Hold that many fewer."""
        with self._lock:
            self.used -= count


class Lease:
    """What one request holds of a room; given back at the end of a `with`."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.held = 0

    def take(self, count: int) -> None:
        """Hold more; a Refusal where there is no more."""
        self.room.take(count)
        self.held += count

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.room.give(self.held)
        self.held = 0
