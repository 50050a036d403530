"""Where metrics go besides metrics.jsonl, which is always written and is the authority."""

import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.run.samples import SampleTable

SWEEP, SWEEP_FILE = "RLFACTORY_SWEEP", "sweep.json"


class Logger(ABC):
    """`start` once, then any number of `log`, `images` and `table` with iterations that don't fall,
    then `finish`. What is logged is in the run folder too: a logger may raise at any time, and may
    be told all of it anew later.
    """

    package: str | None = None
    """What must be installed for it, by the name that is imported."""
    extra: str | None = None
    """The extra of ours that brings it, where that is one."""

    @abstractmethod
    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Begin, or continue the run that an earlier `start` on this folder began."""

    def go_on(self, state: Mapping[str, Any], iteration: int) -> None:
        """Called before `start` where a run goes on after an iteration; `state` is what
        `state_dict` then gave. What was logged of later ones is logged once more.
        """
        del state, iteration

    def anew(self, run_dir: Path) -> None:
        """Called before `start` where all is going to be logged once more, from the beginning."""
        del run_dir

    def state_dict(self) -> dict[str, Any]:
        """By what the service knows the run."""
        return {}

    @abstractmethod
    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars of an iteration."""

    @abstractmethod
    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record a picture (PNG) of an iteration."""

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record samples of an iteration, where the service has tables."""
        del iteration, name, table

    @abstractmethod
    def finish(self) -> None:
        """Flush and close; does nothing if never started."""


class NoLogger(Logger):
    """Nothing besides metrics.jsonl."""

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Nothing to begin."""

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Drop the scalars."""

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Drop the picture."""

    def finish(self) -> None:
        """Nothing to close."""


def group_of(run_dir: Path) -> str | None:
    """The sweep that a run belongs to, `NAME-SIZE`: as the sweep tells its jobs or, where one of
    them is gone on with by hand, as the folder above says.
    """
    if told := os.environ.get(SWEEP):
        return told
    try:
        table = json.loads((run_dir.absolute().parent / SWEEP_FILE).read_text(encoding="utf-8"))
        return f"{table['name']}-{table['size']}"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def known_id(path: Path, saved: str | None = None) -> str:
    """The id that a file holds, else the one that was saved, else a new one."""
    kept = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    return kept or saved or new_id()


def new_id() -> str:
    """One that no other run has."""
    return uuid.uuid4().hex[:8]
