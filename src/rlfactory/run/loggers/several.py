"""Several loggers at once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rlfactory.run.loggers.base import Logger
from rlfactory.run.samples import SampleTable


def parts_of(logger: Logger) -> dict[str, Logger]:
    """The parts of several, by name, or the one that there is."""
    return logger.parts if isinstance(logger, Several) else {type(logger).__name__: logger}


@final
class Several(Logger):
    """Everything goes to each of the parts, in order."""

    made_of = "parts"

    def __init__(self, *, of: list[str], parts: Mapping[str, Logger]) -> None:
        self.parts = {name: parts[name] for name in of}

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Begin with each."""
        for part in self.parts.values():
            part.start(run_dir, config)

    def go_on(self, state: Mapping[str, Any], iteration: int) -> None:
        """Each finds its own in the state."""
        for part in self.parts.values():
            part.go_on(state, iteration)

    def anew(self, run_dir: Path) -> None:
        """All of them."""
        for part in self.parts.values():
            part.anew(run_dir)

    def state_dict(self) -> dict[str, Any]:
        """All that they are known by, as if there were one: so one may be left out or joined."""
        state: dict[str, Any] = {}
        for part in self.parts.values():
            state |= part.state_dict()
        return state

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """To each."""
        for part in self.parts.values():
            part.log(iteration, values)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """To each."""
        for part in self.parts.values():
            part.images(iteration, name, path, caption)

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """To each."""
        for part in self.parts.values():
            part.table(iteration, name, table)

    def finish(self) -> None:
        """Close each."""
        for part in self.parts.values():
            part.finish()
