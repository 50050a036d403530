from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rlfactory.run.loggers.base import SWEEP, Logger
from rlfactory.run.samples import SampleTable


class Noting(Logger):
    """Notes what it is told in a list that may be shared; fails at what it is to fail at."""

    def __init__(self, told: list[Any], name: str = "", fails_at: str = "") -> None:
        self.told, self.name, self.fails_at = told, name, fails_at

    def _note(self, what: str, *args: object) -> None:
        if what == self.fails_at:
            raise ConnectionError("no network\nand more")
        self.told.append((self.name, what, *args) if self.name else (what, *args))

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        self._note("start", run_dir, dict(config))

    def resume(self, state: Mapping[str, Any], iteration: int) -> None:
        self._note("resume", dict(state), iteration)

    def restart(self, run_dir: Path) -> None:
        self._note("restart", run_dir)

    def state_dict(self) -> dict[str, Any]:
        return {self.name: f"id of {self.name}"}

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        self._note("log", iteration, dict(values))

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        self._note("images", iteration, name, path, caption)

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        self._note("table", iteration, name, table)

    def finish(self) -> None:
        self._note("finish")


@pytest.fixture
def noting() -> Callable[..., Logger]:
    return Noting


@pytest.fixture(autouse=True)
def _outside_of_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWEEP, raising=False)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "picture.png"
    Image.new("RGB", (8, 4), "red").save(path)
    return path


@pytest.fixture
def table(picture: Path) -> SampleTable:
    return SampleTable("title", ["prompt", "score"], [["a | cat", 1.0], ["a dog", None]], [picture])
