"""TensorBoard: event files in the run folder."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rlfactory.run.loggers.base import Logger
from rlfactory.run.samples import SampleTable

FOLDER = "tensorboard"


@final
class TensorBoard(Logger):
    """TensorBoard event files in RUN/tensorboard."""

    package = "tensorboard"
    extra = "tensorboard"

    def __init__(self) -> None:
        self._writer: Any = None
        self._purge_step: int | None = None

    def resume(self, state: Mapping[str, Any], iteration: int) -> None:
        """Let `start` hide what was logged of later iterations."""
        self._purge_step = iteration + 1

    def restart(self, run_dir: Path) -> None:
        """Remove the event files; all that they hold is in the run folder too."""
        shutil.rmtree(run_dir / FOLDER, ignore_errors=True)

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open an event file and record the configuration as a text."""
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter
        self._writer = writer(log_dir=str(run_dir / FOLDER), purge_step=self._purge_step)
        lines = "\n".join(f"    {key}: {value}" for key, value in config.items())
        self._writer.add_text("config", lines, 0)

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record an image; TensorBoard has no captions."""
        import numpy as np

        from rlfactory.utils.images import read_image

        pixels = np.asarray(read_image(path))
        self._writer.add_image(name, pixels, iteration, dataformats="HWC")

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record samples as a text, which TensorBoard shows as Markdown."""
        self._writer.add_text(name, table.markdown(), iteration)

    def finish(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
