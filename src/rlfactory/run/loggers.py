"""Where metrics go besides metrics.jsonl, which is always written and is the authority."""

import importlib.util
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal


class Logger(ABC):
    """`start` once, then any number of `log` and `images` with rising iterations, then `finish`."""

    @abstractmethod
    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Begin, or continue the run that an earlier `start` on this folder began."""

    def go_on(self, state: Mapping[str, Any], iteration: int) -> None:
        """Called before `start` where a run goes on after an iteration; `state` is what
        `state_dict` then gave. What was logged of later ones is logged once more.
        """
        del state, iteration

    def state_dict(self) -> dict[str, Any]:
        """By what the service knows the run."""
        return {}

    @abstractmethod
    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars of an iteration."""

    @abstractmethod
    def images(self, iteration: int, name: str, path: Path) -> None:
        """Record a picture (PNG) of an iteration."""

    @abstractmethod
    def finish(self) -> None:
        """Flush and close; does nothing if never started."""


class NoLogger(Logger):
    """Nothing besides metrics.jsonl."""

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Nothing to begin."""

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Drop the scalars."""

    def images(self, iteration: int, name: str, path: Path) -> None:
        """Drop the picture."""

    def finish(self) -> None:
        """Nothing to close."""


class Wandb(Logger):
    """Weights & Biases; offline runs are in RUN/wandb and go up with `wandb sync`."""

    def __init__(
        self,
        *,
        project: str,
        mode: Literal["online", "offline", "disabled"],
        entity: str | None,
        tags: list[str],
    ) -> None:
        self.project, self.mode, self.entity, self.tags = project, mode, entity, tags
        self._run: Any = None
        self._id: str | None = None

    def go_on(self, state: Mapping[str, Any], iteration: int) -> None:
        """Have the next `start` open the same run, even if the folder has lost its id."""
        self._id = state.get("wandb")

    def state_dict(self) -> dict[str, Any]:
        """The run's id."""
        return {"wandb": self._id}

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the run whose id the folder holds, or a new one, and store its id."""
        import wandb

        self._id = _stored_id(run_dir / "wandb_id", self._id)
        self._run = wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            tags=self.tags,
            name=run_dir.name,
            id=self._id,
            # not "must": a run that was killed may not have been heard of there
            resume="allow",
            dir=run_dir,
            config=dict(config),
            # console capture would swallow the live progress line
            settings=wandb.Settings(console="off", silent=self.mode != "online"),
        )
        self._run.define_metric("*", step_metric="iteration")

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars at step `iteration`; of one that it knows already, it drops them."""
        # explicit, since an offline run that goes on does not know where it stopped
        self._run.log({"iteration": iteration, **values}, step=iteration)

    def images(self, iteration: int, name: str, path: Path) -> None:
        """Record a picture at step `iteration`."""
        import wandb

        self._run.log({"iteration": iteration, name: wandb.Image(str(path))}, step=iteration)

    def finish(self) -> None:
        """Close the run."""
        if self._run is not None:
            self._run.finish()
            self._run = None


class TensorBoard(Logger):
    """TensorBoard event files in RUN/tensorboard; ModuleNotFoundError without the extra."""

    def __init__(self) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise ModuleNotFoundError(
                "logger=tensorboard needs a package that is not installed; "
                "type pip install 'rlfactory[tensorboard]', or logger=jsonl"
            )
        self._writer: Any = None
        self._begin: int | None = None

    def go_on(self, state: Mapping[str, Any], iteration: int) -> None:
        """Have what was logged of later iterations replaced."""
        self._begin = iteration + 1

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the event file and note the configuration."""
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter
        self._writer = writer(log_dir=str(run_dir / "tensorboard"), purge_step=self._begin)
        lines = "\n".join(f"    {key}: {value}" for key, value in config.items())
        self._writer.add_text("config", lines, 0)

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)

    def images(self, iteration: int, name: str, path: Path) -> None:
        """Record a picture."""
        import numpy as np
        from PIL import Image

        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        self._writer.add_image(name, pixels, iteration, dataformats="HWC")

    def finish(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _stored_id(path: Path, known: str | None = None) -> str:
    if not path.exists():
        path.write_text((known or uuid.uuid4().hex[:8]) + "\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()
