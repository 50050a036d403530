"""Weights & Biases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, final

from rlfactory.run.loggers.base import Logger, group_of, known_id, new_id
from rlfactory.run.samples import SampleTable

ID = "wandb_id"
UPLOAD_SECONDS = 600.0
"""How long the end of a run waits for a network that is gone."""


@final
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
        self._anew = False

    def go_on(self, state: Mapping[str, Any], iteration: int) -> None:
        """Have the next `start` open the same run, even if the folder has lost its id."""
        self._id = state.get("wandb")

    def anew(self, run_dir: Path) -> None:
        """Have the next `start` open a new run, since one that is there drops what it knows."""
        self._anew = True

    def state_dict(self) -> dict[str, Any]:
        """The run's id."""
        return {"wandb": self._id}

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the run whose id the folder holds, or a new one, and store its id."""
        import wandb

        self._id = new_id() if self._anew else known_id(run_dir / ID, self._id)
        self._run = wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            tags=self.tags,
            group=group_of(run_dir),
            name=run_dir.name,
            id=self._id,
            # not "must": a run that was killed may not have been heard of there
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
        (run_dir / ID).write_text(f"{self._id}\n", encoding="utf-8")  # now that there is one
        self._run.define_metric("*", step_metric="iteration")

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars at step `iteration`; of one that it knows already, it drops them."""
        # explicit, since an offline run that goes on does not know where it stopped
        self._run.log({"iteration": iteration, **values}, step=iteration)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record a picture at step `iteration`."""
        import wandb

        self.log(iteration, {name: wandb.Image(str(path), caption=caption or None)})

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record samples at step `iteration`, with those pictures that there are."""
        import wandb

        rows = table.with_pictures(lambda path: wandb.Image(str(path)))
        self.log(iteration, {name: wandb.Table(columns=table.heads, data=rows)})

    def finish(self) -> None:
        """Close the run."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish()
