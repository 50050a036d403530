"""A watcher at whose every step a run can be left."""

from collections.abc import Callable
from dataclasses import dataclass

from rlfactory.parts import Watcher


@dataclass(frozen=True)
class Interruptible:
    """Tells `watcher`, then calls `leave`, which raises where it is time to go."""

    watcher: Watcher
    leave: Callable[[], None]

    def phase(self, name: str, *, total: int) -> None:
        """A phase begins."""
        self.watcher.phase(name, total=total)

    def advance(self, count: int) -> None:
        """A step was made; with a `count` of 0 too small a one to be shown."""
        if count:
            self.watcher.advance(count)
        self.leave()
