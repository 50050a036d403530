"""Trackio: a local dashboard, or one in a Hugging Face Space."""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rlfactory.run.atomic_write import write_text
from rlfactory.run.loggers.base import Logger, SampleTable, group_of, known_id, new_id
from rlfactory.run.loggers.links import save_link

ID = "trackio_id"


@final
class Trackio(Logger):
    """Trackio; `trackio show --project PROJECT` opens its dashboard.

    With `space`, a Hugging Face Space `owner/name` stores the runs, else this machine.
    """

    package = "trackio"
    extra = "trackio"

    def __init__(self, *, project: str, space: str | None) -> None:
        self.project, self.space = project, space
        self._run: Any = None
        self._id: str | None = None
        self._restarts = False
        self._last_step = -1

    def resume(self, state: Mapping[str, Any], iteration: int) -> None:
        """Let `start` open the same run, even if the folder has lost its id."""
        self._id = state.get("trackio")

    def restart(self, run_dir: Path) -> None:
        """Let `start` open a new run."""
        self._restarts = True

    def state_dict(self) -> dict[str, Any]:
        """The run's id."""
        return {"trackio": self._id}

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the run whose id the folder holds, or a new one, and store its id."""
        import trackio
        from huggingface_hub.constants import ENDPOINT

        self._id = new_id() if self._restarts else known_id(run_dir / ID, self._id)
        with contextlib.redirect_stdout(io.StringIO()):  # messages break live progress
            self._run = trackio.init(
                project=self.project,
                # Trackio knows runs by their names, and folders of one name may be many
                name=f"{run_dir.name}-{self._id}",
                group=group_of(run_dir),
                space_id=self.space,
                config=dict(config),
                resume="allow",
                embed=False,
            )
        write_text(run_dir / ID, f"{self._id}\n")
        if self.space:
            save_link(run_dir, "Trackio", f"{ENDPOINT}/spaces/{self.space}")
        self._last_step = self._run._next_step - 1

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars at step `iteration`, unless Trackio has a later step already.

        Recorded again they would stand twice. Of its last step it may have a part only.
        """
        if iteration >= self._last_step:
            self._run.log(dict(values), step=iteration)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record an image."""
        import trackio

        self.log(iteration, {name: trackio.Image(path, caption=caption or None)})

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record samples, with the images that exist."""
        import trackio

        rows = table.with_images(trackio.Image)
        self.log(iteration, {name: trackio.Table(columns=table.heads, data=rows)})

    def finish(self) -> None:
        """Wait until everything is stored or uploaded."""
        if self._run is not None:
            import trackio

            self._run = None
            with contextlib.redirect_stdout(io.StringIO()):
                # not the run's own `finish`, after which Trackio finishes it once more at exit
                trackio.finish()
