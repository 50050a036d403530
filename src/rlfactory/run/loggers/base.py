"""The contract of a logger: shows a run's metrics and samples in a service such as W&B.

metrics.jsonl in the run folder is always written, and is what curves and reports are made from.
"""

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

from rlfactory.run.atomic_write import write_json, write_text
from rlfactory.run.samples import SampleTable
from rlfactory.utils.data_files import FileError, read_json, read_text


class _Sweep(TypedDict):
    """The name in a sweep's table."""

    name: str
    size: str


SWEEP, SWEEP_FILE, LINKS = "RLFACTORY_SWEEP", "sweep.json", "links.json"
GRID, TABLE = "eval/samples", "eval/table"


class Logger(ABC):
    """Sends metrics, images and tables to a service.

    Constructors take keyword-only configuration and no run-time arguments. The order of calls:
    `resume` or `restart`, `start`, then any number of `log`, `images` and `table` with iterations
    that do not fall, then `finish`. `state_dict` is called at every checkpoint. Only the main
    process has a logger.

    Any method may raise any exception: the run then continues without the logger (see
    `fault_tolerant`), and `rlfactory sync` sends everything from the run folder later.

    Attributes:
        package: the package that it imports, by its import name; `check` says if that is missing.
        extra: the extra of rlfactory that installs the package, if there is one.
        made_of: the option whose entries are loggers that it holds; None for a single one.
    """

    package: str | None = None
    extra: str | None = None
    made_of: str | None = None

    @abstractmethod
    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the service's run, or continue that of an earlier `start` on the same folder.

        Args:
            run_dir: the run folder; its name is that of the run.
            config: the frozen configuration of the run.
        """

    def resume(self, state: Mapping[str, Any], iteration: int) -> None:
        """Prepare to continue a run from a checkpoint; called before `start`.

        Args:
            state: what `state_dict` returned when the checkpoint was saved.
            iteration: the checkpoint's. What was logged of later iterations is logged again.
        """
        del state, iteration

    def restart(self, run_dir: Path) -> None:
        """Prepare to log all of a run folder, perhaps once more; called before `start`."""
        del run_dir

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint holds.

        Returns:
            Plain values; usually the id by which the service knows the run, under the logger's own
            key, since the states of several loggers are merged.
        """
        return {}

    @abstractmethod
    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars.

        Args:
            iteration: counted from 0.
            values: by metric name, such as `reward/shapes/mean`; they may be NaN or infinite.
        """

    @abstractmethod
    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record an image.

        Args:
            iteration: that of the evaluation.
            name: of the image, such as `eval/samples`.
            path: a PNG file, which stays in the run folder.
            caption: a line of text.
        """

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record the samples of an evaluation; does nothing where the service has no tables.

        Args:
            iteration: that of the evaluation.
            name: of the table, such as `eval/table`.
            table: prompts, responses and scores, and images of some rows.
        """
        del iteration, name, table

    @abstractmethod
    def finish(self) -> None:
        """Upload what is left and close the run; does nothing if `start` was never called."""


class NoLogger(Logger):
    """No service: metrics.jsonl alone."""

    def _nothing(self, *_: object, **__: object) -> None:
        """Do nothing."""

    start = log = images = finish = _nothing


class HostedRun(Logger):
    """A run of a service that knows it by an id, which the run folder's file SERVICE_id keeps.

    Its package has `Image` and `Table`, as W&B's, unless its class records them otherwise.

    Attributes:
        service: the name of its package, and of the id's file and key.
        id: the run's.
        run: what `open` has opened, None when it is closed.
    """

    service: str

    def __init__(self) -> None:
        self.run: Any = None
        self.id: str | None = None
        self._restarts = False

    def resume(self, state: Mapping[str, Any], iteration: int) -> None:
        """Let `start` open the same run, even if the folder has lost its id."""
        self.id = state.get(self.service)

    def restart(self, run_dir: Path) -> None:
        """Let `start` open a new run, since an existing one drops steps that it has passed."""
        self._restarts = True

    def state_dict(self) -> dict[str, Any]:
        return {self.service: self.id}

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the run whose id the folder holds, or a new one, and store its id."""
        path = run_dir / f"{self.service}_id"
        known = None if self._restarts else known_id(path, self.id)
        self.id = known or self.first_id()
        self.open(run_dir, config)
        write_text(path, f"{self.id}\n")

    def first_id(self) -> str | None:
        """A new id; None where the service gives it, and `open` notes it."""
        return uuid.uuid4().hex[:8]

    @abstractmethod
    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the run of this id."""

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        self.log(iteration, {name: self._package.Image(str(path), caption=caption or None)})

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record samples at step `iteration`, with the images that exist."""
        rows = table.with_images(lambda path: self._package.Image(str(path)))
        self.log(iteration, {name: self._package.Table(columns=table.heads, data=rows)})

    def finish(self) -> None:
        if self.run is not None:
            try:
                self.close()
            finally:
                self.run = None

    @abstractmethod
    def close(self) -> None:
        """Close the run, once everything is stored or uploaded."""

    @property
    def _package(self) -> Any:
        return import_module(self.service)


def log_samples(logger: Logger, iteration: int, path: Path, prompt_set: str = "") -> None:
    """Log an evaluation's samples: `path` if it is an image, and the table beside it if it exists.

    `path` is the file that `Gallery.show` returned; of a prompt set the names have its name inside.
    """
    table_file = path.with_suffix(".json")
    table = SampleTable.load(table_file) if table_file.is_file() else None
    inside = f"/{prompt_set}/" if prompt_set else "/"
    grid, cells = GRID.replace("/", inside), TABLE.replace("/", inside)
    if path.suffix == ".png":
        logger.images(iteration, grid, path, "" if table is None else table.title)
    if table is not None:
        logger.table(iteration, cells, table)


def save_link(run_dir: Path, name: str, url: str | None) -> None:
    """Write the address of a service's page of this run, which model cards name, if it has one."""
    if url:
        write_json(run_dir / LINKS, {**logger_links(run_dir), name: url})


def logger_links(run_dir: Path) -> dict[str, str]:
    """The addresses that `save_link` has written, by the services' names."""
    path = run_dir / LINKS
    return read_json(path, dict[str, str], remedy="remove it") if path.exists() else {}


def group_of(run_dir: Path) -> str | None:
    """The sweep that a run belongs to, as `NAME-SIZE`; None for a run of its own.

    A sweep sets it in its jobs' environment. Of a job that is resumed by hand, the sweep's file in
    the folder above says it.
    """
    if group := os.environ.get(SWEEP):
        return group
    try:
        table = read_json(run_dir.absolute().parent / SWEEP_FILE, _Sweep)
    except (FileError, FileNotFoundError):
        return None
    return f"{table['name']}-{table['size']}"


def known_id(path: Path, saved: str | None = None) -> str | None:
    """The run id in the file `path`, else the `saved` one of a checkpoint, if there is one."""
    kept = read_text(path, remedy="remove it").strip() if path.exists() else ""
    return kept or (saved if isinstance(saved, str) and saved else None)
