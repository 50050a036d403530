"""A service that fails must not end a run: all that it is told stands in the run folder too."""

import logging
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from rlfactory.run.loggers.base import Logger
from rlfactory.run.loggers.several import Several, parts_of
from rlfactory.run.samples import SampleTable

log = logging.getLogger(__name__)

Say = Callable[[str], None]


def guarded(logger: Logger, say: Say) -> Several:
    """The logger, or each of its parts, behind a guard; `say` shows a line."""
    parts = parts_of(logger)
    return Several(of=[*parts], parts={name: Guarded(p, name, say) for name, p in parts.items()})


@final
class Guarded(Logger):
    """Once a logger has failed, it is told nothing more in this sitting: what came after a gap
    could hide that there is one. `rlfactory sync` tells it everything.
    """

    def __init__(self, logger: Logger, name: str, say: Say) -> None:
        self.logger, self.name, self.say = logger, name, say
        self.failed = False
        self._run_dir = Path()

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Begin, if it can."""
        self._run_dir = run_dir
        self._try(self.logger.start, run_dir, config)

    def go_on(self, state: Mapping[str, Any], iteration: int) -> None:
        """Continue, if it can."""
        self._try(self.logger.go_on, state, iteration)

    def state_dict(self) -> dict[str, Any]:
        """The logger's own."""
        return self.logger.state_dict()

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars, if it can."""
        self._try(self.logger.log, iteration, values)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record a picture, if it can."""
        self._try(self.logger.images, iteration, name, path, caption)

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record samples, if it can."""
        self._try(self.logger.table, iteration, name, table)

    def finish(self) -> None:
        """Close it, whatever state it is in."""
        if self.failed:
            with suppress(Exception):
                self.logger.finish()
        self._try(self.logger.finish)

    def _try(self, call: Callable[..., None], *args: object) -> None:
        if self.failed:
            return
        try:
            call(*args)
        except Exception as error:  # whatever a service may do
            self.failed = True
            log.warning("the logger %s failed", self.name, exc_info=True)
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            typed = f"rlfactory sync {shlex.quote(str(self._run_dir))}"
            self.say(
                f"logger {self.name} failed ({reason}); the run goes on without it, and"
                f" metrics.jsonl has everything. Afterwards: {typed}"
            )
