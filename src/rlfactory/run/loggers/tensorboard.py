"""TensorBoard."""

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
        self._begin: int | None = None

    def go_on(self, state: Mapping[str, Any], iteration: int) -> None:
        """Have what was logged of later iterations replaced."""
        self._begin = iteration + 1

    def anew(self, run_dir: Path) -> None:
        """Remove the event files, which hold nothing that is not in the run folder."""
        shutil.rmtree(run_dir / FOLDER, ignore_errors=True)

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the event file and note the configuration."""
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter
        self._writer = writer(log_dir=str(run_dir / FOLDER), purge_step=self._begin)
        lines = "\n".join(f"    {key}: {value}" for key, value in config.items())
        self._writer.add_text("config", lines, 0)

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record a picture; it has no place for a caption."""
        import numpy as np
        from PIL import Image

        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        self._writer.add_image(name, pixels, iteration, dataformats="HWC")

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record samples as a text, which is shown as Markdown."""
        self._writer.add_text(name, table.markdown(), iteration)

    def finish(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
