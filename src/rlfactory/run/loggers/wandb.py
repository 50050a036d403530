"""Weights & Biases, online or offline."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, final

from rlfactory.run.atomic_write import write_text
from rlfactory.run.loggers.base import Logger, SampleTable, group_of, known_id, new_id
from rlfactory.run.loggers.links import save_link

ID = "wandb_id"
UPLOAD_SECONDS = 600.0
"""How long the end of a run waits for the upload."""


@final
class Wandb(Logger):
    """Weights & Biases; offline runs are in RUN/wandb, and `wandb sync` uploads them."""

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
        self._restarts = False

    def resume(self, state: Mapping[str, Any], iteration: int) -> None:
        """Let `start` open the same run, even if the folder has lost its id."""
        self._id = state.get("wandb")

    def restart(self, run_dir: Path) -> None:
        """Let `start` open a new run, since an existing one drops steps that it has passed."""
        self._restarts = True

    def state_dict(self) -> dict[str, Any]:
        """The run's id."""
        return {"wandb": self._id}

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the run whose id the folder holds, or a new one, and store its id."""
        import wandb

        self._id = new_id() if self._restarts else known_id(run_dir / ID, self._id)
        self._run = wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            tags=self.tags,
            group=group_of(run_dir),
            name=run_dir.name,
            id=self._id,
            # not "must": a run that was killed may not have reached the server
            resume="allow",
            dir=run_dir,
            config=dict(config),
            settings=wandb.Settings(
                # console capture would swallow the live progress line
                console="off",
                silent=self.mode != "online",
                finish_timeout=UPLOAD_SECONDS,
                finish_timeout_raises=True,
            ),
        )
        write_text(run_dir / ID, f"{self._id}\n")
        save_link(run_dir, "Weights & Biases", self._run.url)  # None offline
        self._run.define_metric("*", step_metric="iteration")

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars at step `iteration`; W&B drops steps before its last one."""
        # an explicit step, since a resumed offline run does not know its last one
        self._run.log({"iteration": iteration, **values}, step=iteration)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record an image at step `iteration`."""
        import wandb

        self.log(iteration, {name: wandb.Image(str(path), caption=caption or None)})

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record samples at step `iteration`, with the images that exist."""
        import wandb

        rows = table.with_images(lambda path: wandb.Image(str(path)))
        self.log(iteration, {name: wandb.Table(columns=table.heads, data=rows)})

    def finish(self) -> None:
        """Close the run."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish()
