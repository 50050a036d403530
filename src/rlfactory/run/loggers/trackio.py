"""Trackio: a local dashboard, or one in a Hugging Face Space."""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rlfactory.run.loggers.base import HostedRun, group_of, save_link


@final
class Trackio(HostedRun):
    """Trackio; `trackio show --project PROJECT` opens its dashboard.

    With `space`, a Hugging Face Space `owner/name` stores the runs, else this machine.
    """

    package = extra = service = "trackio"

    def __init__(self, *, project: str, space: str | None) -> None:
        """
        Args:
            project: what `trackio show --project` opens.
            space: owner/name of a Hugging Face Space that keeps it; null: this machine.
        """
        super().__init__()
        self.project, self.space = project, space
        self._last_step = -1

    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        import trackio
        from huggingface_hub.constants import ENDPOINT

        with contextlib.redirect_stdout(io.StringIO()):  # messages break live progress
            self.run = trackio.init(
                project=self.project,
                # Trackio knows runs by their names, and folders of one name may be many
                name=f"{run_dir.name}-{self.id}",
                group=group_of(run_dir),
                space_id=self.space,
                config=dict(config),
                resume="allow",
                embed=False,
            )
        if self.space:
            save_link(run_dir, "Trackio", f"{ENDPOINT}/spaces/{self.space}")
        self._last_step = self.run._next_step - 1

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars at step `iteration`, unless Trackio has a later step already.

        Recorded again they would stand twice. Of its last step it may have a part only.
        """
        if iteration >= self._last_step:
            self.run.log(dict(values), step=iteration)

    def close(self) -> None:
        """Wait until everything is stored or uploaded."""
        import trackio

        with contextlib.redirect_stdout(io.StringIO()):
            # not the run's own `finish`, after which Trackio finishes it once more at exit
            trackio.finish()
