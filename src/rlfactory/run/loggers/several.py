"""Several loggers at once: calls go to each of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rlfactory.run.loggers.base import Logger, SampleTable


def loggers_by_name(logger: Logger) -> dict[str, Logger]:
    """The parts of `Several` by their names, or a single logger by that of its class."""
    return logger.parts if isinstance(logger, Several) else {type(logger).__name__: logger}


@final
class Several(Logger):
    """Passes every call on to its parts, in the order of `of`."""

    made_of = "parts"  # the key whose entries are configurations of the same group

    def __init__(self, *, of: list[str], parts: Mapping[str, Logger]) -> None:
        self.parts = {name: parts[name] for name in of}

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Start each part."""
        for part in self.parts.values():
            part.start(run_dir, config)

    def resume(self, state: Mapping[str, Any], iteration: int) -> None:
        """Resume each part; it finds its own keys in the merged state."""
        for part in self.parts.values():
            part.resume(state, iteration)

    def restart(self, run_dir: Path) -> None:
        """Restart each part."""
        for part in self.parts.values():
            part.restart(run_dir)

    def state_dict(self) -> dict[str, Any]:
        """The states of all parts merged, so that a resumed run may have other parts."""
        state: dict[str, Any] = {}
        for part in self.parts.values():
            state |= part.state_dict()
        return state

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Pass on to each part."""
        for part in self.parts.values():
            part.log(iteration, values)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Pass on to each part."""
        for part in self.parts.values():
            part.images(iteration, name, path, caption)

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Pass on to each part."""
        for part in self.parts.values():
            part.table(iteration, name, table)

    def finish(self) -> None:
        """Finish each part."""
        for part in self.parts.values():
            part.finish()
