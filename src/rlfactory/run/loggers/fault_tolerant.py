"""Fault tolerance of loggers: nothing that a service or a logger does ends or stops the run."""

import json
import logging
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, final

from rlfactory.run.checkpoint.serialization import flatten
from rlfactory.run.loggers.base import Logger, SampleTable
from rlfactory.run.loggers.bounded import BoundedCalls
from rlfactory.run.loggers.several import Several, loggers_by_name
from rlfactory.utils.data_files import require_shallow
from rlfactory.utils.errors import UserError

log = logging.getLogger(__name__)

SECONDS, FINISH_SECONDS = 120.0, 660.0
"""How long a call is waited for; and that which uploads what is left, a minute longer than W&B's
own limit.
"""
Made = Callable[[], Logger]


def fault_tolerant(logger: Logger, show: Callable[[str], None]) -> Several:
    """The logger, or each part of `Several`, wrapped; `show` is called with a line on a failure."""
    parts = {
        name: FaultTolerant(part, name, show) for name, part in loggers_by_name(logger).items()
    }
    return Several(of=[*parts], parts=parts)


def made_tolerant(makers: Mapping[str, Made], show: Callable[[str], None]) -> Several:
    """The loggers that these make, by name, each wrapped; one that can't be made is left out.

    Raises:
        UserError: one may not be made, or a package is missing, as its message says.
    """
    parts = {}
    for name, make in makers.items():
        wrapped = FaultTolerant(Unmade(), name, show)
        wrapped.make(make)
        parts[name] = wrapped
    return Several(of=[*parts], parts=parts)


class Unmade(Logger):
    """Stands for a logger that is not made yet, or could not be."""

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Do nothing."""

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Do nothing."""

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


@final
class FaultTolerant(Logger):
    """Passes calls on to a logger until one raises, or does not return within `SECONDS`; then drops
    them until the process ends.

    Calls after a gap would hide it. `rlfactory sync` sends everything from the run folder. All of
    them are made in one thread, which is not the main one.
    """

    def __init__(self, logger: Logger, name: str, show: Callable[[str], None]) -> None:
        self.logger, self.name, self.show = logger, name, show
        self.failed = False
        self._calls = BoundedCalls(f"logger {name}")
        self._run_dir: Path | None = None

    def make(self, make: Made) -> None:
        """Make the logger, in the thread in which it is called; UserError passes."""

        def made() -> None:
            logger = make()
            if not isinstance(logger, Logger):
                raise TypeError(f"{type(logger).__name__} is no Logger")
            self.logger = logger

        self._try(made)

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Pass on."""
        self._run_dir = run_dir
        self._try(self.logger.start, run_dir, config)

    def resume(self, state: Mapping[str, Any], iteration: int) -> None:
        """Pass on."""
        self._try(self.logger.resume, state, iteration)

    def state_dict(self) -> dict[str, Any]:
        """The logger's, also after a failure; empty where it can't be had or saved."""
        state: dict[str, Any] = {}
        with suppress(Exception):  # after a failure nobody is told again
            self._call(lambda: state.update(_plain(self.logger.state_dict())), reports=True)
        return state

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
            with suppress(Exception, SystemExit):
                self._calls(self.logger.finish, FINISH_SECONDS)
        self._try(self.logger.finish, seconds=FINISH_SECONDS)

    def _try(self, call: Callable[..., None], *args: object, seconds: float | None = None) -> None:
        if not self.failed:
            self._call(partial(call, *args), seconds)

    def _call(
        self, call: Callable[[], None], seconds: float | None = None, *, reports: bool = False
    ) -> None:
        """Make a call; an error of it is told, once, and is the logger's last."""
        try:
            self._calls(call, SECONDS if seconds is None else seconds)
        except UserError:
            if self._run_dir is None and not reports:  # it may not be made
                raise
            self._fail("can't be used")
        except (Exception, SystemExit) as error:  # a service's client may raise anything
            self._fail(_reason(error))

    def _fail(self, reason: str) -> None:
        if self.failed:
            return
        self.failed = True
        log.warning("the logger %s failed", self.name, exc_info=True)
        command = f"rlfactory sync {shlex.quote(str(self._run_dir or 'RUN'))}"
        self.show(
            f"logger {self.name} failed ({reason}); the run continues without it, and"
            f" metrics.jsonl has everything. Afterwards, type: {command}"
        )


def _reason(error: BaseException) -> str:
    try:
        return str(error).strip().split("\n")[0] or type(error).__name__
    except Exception:  # its own text may fail as well
        return type(error).__name__


def _plain(state: Any) -> dict[str, Any]:
    """A logger's state, if a checkpoint can hold it.

    Raises:
        TypeError, ValueError: it is no mapping of plain values.
    """
    if not isinstance(state, dict):
        raise TypeError(f"its state is a {type(state).__name__}, no dict")
    values, tensors = flatten(state)
    if tensors:
        raise TypeError("its state holds tensors")
    require_shallow(values)
    json.dumps(values)
    return state
