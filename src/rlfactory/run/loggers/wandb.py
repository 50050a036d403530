"""Weights & Biases, online or offline."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, final

from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers.base import HostedRun, group_of, save_link

UPLOAD_SECONDS = 600.0
"""How long the end of a run waits for the upload."""


@final
class Wandb(HostedRun):
    """Weights & Biases; offline runs are in RUN/wandb, and `wandb sync` uploads them."""

    service = "wandb"

    def __init__(
        self,
        *,
        project: str | None,
        mode: Literal["online", "offline", "disabled"] | None,
        entity: str | None,
        tags: list[str],
    ) -> None:
        """
        Args:
            project: W&B project; null: by WANDB_PROJECT, else rlfactory.
            mode: online | offline | disabled; null: by WANDB_MODE, else online.
            entity: W&B team; null: your default.
            tags: W&B tags; empty: by WANDB_TAGS.
        """
        super().__init__()
        self.project, self.mode, self.entity, self.tags = project, mode, entity, tags

    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self.folder = RunFolder(run_dir)
        self.run = wandb.init(
            project=self.project or os.environ.get("WANDB_PROJECT") or "rlfactory",
            entity=self.entity,
            mode=self.mode,
            tags=self.tags or None,  # none would hide WANDB_TAGS
            group=group_of(run_dir),
            name=run_dir.name,
            id=self.id,
            # not "must": a run that was killed may not have reached the server
            resume="allow",
            # W&B would else give us a run that the user has open, or end it
            reinit="default" if wandb.run is None else "create_new",
            dir=run_dir,
            config=dict(config),
            settings=wandb.Settings(
                # console capture would swallow the live progress line
                console="off",
                silent=(self.mode or os.environ.get("WANDB_MODE", "online")) != "online",
                finish_timeout=UPLOAD_SECONDS,
                finish_timeout_raises=True,
            ),
        )
        if not self.run.offline:  # its address would be none, and asking for it prints a warning
            save_link(run_dir, "Weights & Biases", self.run.url)
        self.run.define_metric("*", step_metric="iteration")

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars at step `iteration`; W&B drops steps before its last one."""
        # an explicit step, since a resumed offline run does not know its last one
        self.run.log({"iteration": iteration, **values}, step=iteration)

    def close(self) -> None:
        """Upload what is left; W&B shows whether the run has failed."""
        self.run.finish(exit_code=int(self.folder.read_status() == "failed"))
