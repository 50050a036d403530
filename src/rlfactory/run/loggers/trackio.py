"""Trackio, which keeps everything on this machine."""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rlfactory.run.loggers.base import Logger, group_of, known_id, new_id
from rlfactory.run.samples import SampleTable

ID = "trackio_id"


@final
class Trackio(Logger):
    """Trackio; `trackio show --project PROJECT` opens it. With `space`, it is a Hugging Face Space
    that holds everything.
    """

    package = "trackio"
    extra = "trackio"

    def __init__(self, *, project: str, space: str | None) -> None:
        self.project, self.space = project, space
        self._run: Any = None
        self._id: str | None = None
        self._anew = False
        self._told = -1

    def go_on(self, state: Mapping[str, Any], iteration: int) -> None:
        """Have the next `start` open the same run, even if the folder has lost its id."""
        self._id = state.get("trackio")

    def anew(self, run_dir: Path) -> None:
        """Have the next `start` open a new run."""
        self._anew = True

    def state_dict(self) -> dict[str, Any]:
        """The run's id."""
        return {"trackio": self._id}

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Open the run whose id the folder holds, or a new one, and store its id."""
        import trackio

        self._id = new_id() if self._anew else known_id(run_dir / ID, self._id)
        with contextlib.redirect_stdout(io.StringIO()):  # it would break the live lines
            self._run = trackio.init(
                project=self.project,
                # it knows runs by their names, which folders share
                name=f"{run_dir.name}-{self._id}",
                group=group_of(run_dir),
                space_id=self.space,
                config=dict(config),
                resume="allow",
                embed=False,
            )
        (run_dir / ID).write_text(f"{self._id}\n", encoding="utf-8")  # now that there is one
        self._told = self._run._next_step - 1

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Record scalars at step `iteration`, but for one before the last that it knows: it would
        have them twice. Of the last it may have a part.
        """
        if iteration >= self._told:
            self._run.log(dict(values), step=iteration)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record a picture."""
        import trackio

        self.log(iteration, {name: trackio.Image(path, caption=caption or None)})

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record samples, with those pictures that there are."""
        import trackio

        rows = table.with_pictures(trackio.Image)
        self.log(iteration, {name: trackio.Table(columns=table.heads, data=rows)})

    def finish(self) -> None:
        """Wait until everything is stored."""
        if self._run is not None:
            import trackio

            self._run = None
            with contextlib.redirect_stdout(io.StringIO()):
                trackio.finish()  # not the run's own, after which it is finished once more at exit
