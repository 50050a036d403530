"""Several loggers as one: nothing that one of them or its service does ends or stops the run."""

import json
import logging
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, final

from rlfactory.run.loggers.base import Logger, NoLogger
from rlfactory.utils.data_files import require_shallow
from rlfactory.utils.errors import UserError
from rlfactory.utils.workers import WorkerThread

log = logging.getLogger(__name__)

SECONDS, FINISH_SECONDS = 120.0, 660.0
"""How long a call is waited for; and that which uploads what is left, a minute longer than W&B's
own limit.
"""


def _told(method: str) -> Any:
    """A method that passes its calls on to each logger, until it fails."""

    def tell(self: "FaultTolerant", *args: object, **kwargs: object) -> None:
        for guarded in self._guarded:
            guarded.tell(method, *args, **kwargs)

    return tell


class FaultTolerant(Logger):
    """Passes every call on to its loggers, in order, until one raises, or does not return within
    `SECONDS`: that one gets no more calls until the process ends.

    Calls after a gap would hide it. `rlfactory sync` sends everything from the run folder. A logger
    that can't be made is left out; `show` is called with a line on a failure.

    Raises:
        UserError: a logger may not be made, or a package is missing, as its message says.
    """

    def __init__(
        self, makers: Mapping[str, Callable[[], Logger]], show: Callable[[str], None]
    ) -> None:
        self._guarded = [_Guarded(name, make, show) for name, make in makers.items()]

    resume, restart = _told("resume"), _told("restart")
    log, images, table = _told("log"), _told("images"), _told("table")

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        for guarded in self._guarded:
            guarded.run_dir = run_dir
            guarded.tell("start", run_dir, config)

    def state_dict(self) -> dict[str, Any]:
        """The states of all loggers merged, so that a resumed run may have others."""
        return {k: v for guarded in self._guarded for k, v in guarded.state_dict().items()}

    def finish(self) -> None:
        for guarded in self._guarded:
            guarded.finish()


@final
class Several(FaultTolerant):
    """The loggers among `parts` that `of` names, in its order."""

    made_of = "parts"

    def __init__(self, *, of: list[str], parts: Mapping[str, Logger]) -> None:
        """
        Args:
            of: Names from `rlfactory list logger`, or of your own parts.
            parts: Their own options, logger.parts.NAME.OPTION; a part of your own begins with its
                _target_.
        """
        self.parts = {name: parts[name] for name in of}
        super().__init__({n: partial(self.parts.__getitem__, n) for n in of}, log.error)


class _Guarded:
    """A logger and the thread in which it is made and all of its calls are."""

    def __init__(self, name: str, make: Callable[[], Logger], show: Callable[[str], None]) -> None:
        self.name, self.show = name, show
        self.run_dir: Path | None = None
        self._failed = self._finished = False
        self._thread = WorkerThread(f"logger {name}")
        self._logger: Logger = NoLogger()

        def keep() -> None:
            logger = make()
            if not isinstance(logger, Logger):
                raise TypeError(f"{type(logger).__name__} is no Logger")
            self._logger = logger

        self._try(keep)

    def tell(self, method: str, *args: object, **kwargs: object) -> None:
        """Make a call, unless one has failed."""
        if not self._failed:
            self._try(partial(getattr(self._logger, method), *args, **kwargs))

    def state_dict(self) -> dict[str, Any]:
        """The logger's, also after a failure; empty where it can't be had or saved."""
        state: dict[str, Any] = {}
        # a UserError is one of a logger that was made
        self._try(lambda: state.update(_plain(self._logger.state_dict())), passes=())
        return state

    def finish(self) -> None:
        """Close the logger, once; errors after a failure are dropped."""
        if not self._finished:
            self._finished = True
            self._try(self._logger.finish, FINISH_SECONDS)

    def _try(
        self,
        call: Callable[[], None],
        seconds: float | None = None,
        passes: tuple[type[BaseException], ...] = (UserError,),
    ) -> None:
        """Make a call; an error of it is told, once, and is the logger's last."""
        try:
            self._thread.call(call, seconds or SECONDS)
        except (Exception, SystemExit) as error:  # a service's client may raise anything
            if self._failed:
                return
            if self.run_dir is None and isinstance(error, passes):  # it may not be made
                raise
            self._failed = True
            log.warning("the logger %s failed", self.name, exc_info=True)
            reason = "can't be used" if isinstance(error, UserError) else _reason(error)
            command = f"rlfactory sync {shlex.quote(str(self.run_dir or 'RUN'))}"
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
    """A logger's state; TypeError or ValueError where it is no mapping of plain values."""
    from rlfactory.run.checkpoint.serialization import flatten  # imports torch

    if not isinstance(state, dict):
        raise TypeError(f"its state is a {type(state).__name__}, no dict")
    values, tensors = flatten(state)
    if tensors:
        raise TypeError("its state holds tensors")
    require_shallow(values)
    json.dumps(values)
    return state
