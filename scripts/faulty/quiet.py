"""A logger that takes everything and keeps nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.run.loggers.base import Logger


class Quiet(Logger):
    """Reads what it is given, as a service would."""

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Nothing to open."""

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Numbers are numbers."""
        sum(values.values())

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """An image is a file."""
        path.read_bytes()

    def finish(self) -> None:
        """Nothing to close."""
