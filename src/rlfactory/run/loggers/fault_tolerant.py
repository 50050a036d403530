"""Fault tolerance of loggers: a service that fails does not end the run."""

import logging
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from rlfactory.run.loggers.base import Logger, SampleTable
from rlfactory.run.loggers.several import Several, loggers_by_name

log = logging.getLogger(__name__)


def fault_tolerant(logger: Logger, show: Callable[[str], None]) -> Several:
    """The logger, or each part of `Several`, wrapped; `show` is called with a line on a failure."""
    parts = {
        name: FaultTolerant(part, name, show) for name, part in loggers_by_name(logger).items()
    }
    return Several(of=[*parts], parts=parts)


@final
class FaultTolerant(Logger):
    """Passes calls on to a logger until one raises; then drops them until the process ends.

    Calls after a gap would hide it. `rlfactory sync` sends everything from the run folder.
    """

    def __init__(self, logger: Logger, name: str, show: Callable[[str], None]) -> None:
        self.logger, self.name, self.show = logger, name, show
        self.failed = False
        self._run_dir = Path()

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Pass on."""
        self._run_dir = run_dir
        self._try(self.logger.start, run_dir, config)

    def resume(self, state: Mapping[str, Any], iteration: int) -> None:
        """Pass on."""
        self._try(self.logger.resume, state, iteration)

    def state_dict(self) -> dict[str, Any]:
        """The logger's, also after a failure."""
        return self.logger.state_dict()

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Pass on."""
        self._try(self.logger.log, iteration, values)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Pass on."""
        self._try(self.logger.images, iteration, name, path, caption)

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Pass on."""
        self._try(self.logger.table, iteration, name, table)

    def finish(self) -> None:
        """Close the logger, also after a failure; errors are dropped then."""
        if self.failed:
            with suppress(Exception):
                self.logger.finish()
        self._try(self.logger.finish)

    def _try(self, call: Callable[..., None], *args: object) -> None:
        if self.failed:
            return
        try:
            call(*args)
        except Exception as error:  # a service's client may raise anything
            self.failed = True
            log.warning("the logger %s failed", self.name, exc_info=True)
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            command = f"rlfactory sync {shlex.quote(str(self._run_dir))}"
            self.show(
                f"logger {self.name} failed ({reason}); the run continues without it, and"
                f" metrics.jsonl has everything. Afterwards, type: {command}"
            )
