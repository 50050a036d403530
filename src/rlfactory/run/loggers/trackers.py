"""MLflow and SwanLab, by accelerate's trackers."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, final

from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers.base import HostedRun, group_of, save_link
from rlfactory.run.samples import SampleTable
from rlfactory.utils.dotted_keys import leaves


class Tracked(HostedRun):
    """A run of a service for which accelerate has a tracker; `run` is that tracker."""

    def track(self, project: str, config: Mapping[str, Any], **words: Any) -> Any:
        """Open the tracker with its own `words`; returns the service's run."""
        from accelerate import PartialState
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        PartialState()  # without it a tracker's own log fails
        self.run = LOGGER_TYPE_TO_CLASS[self.service](project, **words)
        self.run.start()
        self.run.store_init_configuration(config)
        return self.run.tracker

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=iteration)

    def close(self) -> None:
        self.run.finish()


@final
class MLflow(Tracked):
    """MLflow, by MLFLOW_TRACKING_URI on a server, in a database or in a folder."""

    package = service = "mlflow"

    def __init__(self, *, project: str) -> None:
        """
        Args:
            project: MLflow experiment; MLFLOW_EXPERIMENT_NAME goes before it.
        """
        super().__init__()
        self.project = project

    def first_id(self) -> None:
        """MLflow gives the ids."""

    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        import mlflow

        self.folder, group = RunFolder(run_dir), group_of(run_dir)
        # of a run that continues, MLflow refuses other parameters
        parameters = {} if self.id else dict(leaves(config, targets=True))
        tags = {"group": group} if group else None
        words = {"run_id": self.id, "run_name": run_dir.name, "tags": tags}
        info = self.track(self.project, parameters, **words).info
        self.id, server = info.run_id, mlflow.get_tracking_uri()
        if server.startswith("http"):
            page = f"{server}/#/experiments/{info.experiment_id}/runs/{self.id}"
            save_link(run_dir, "MLflow", page)

    def images(self, iteration: int, name: str, path: Path, caption: str = "") -> None:
        """Record an image; MLflow has no captions."""
        self._package.log_image(self._package.Image(str(path)), key=name, step=iteration)

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Append the rows, without images, to the run's table of this name."""
        columns = {head: [row[k] for row in table.rows] for k, head in enumerate(table.columns)}
        columns["iteration"] = [iteration] * len(table.rows)
        self._package.log_table(columns, f"{name}.json")

    def close(self) -> None:
        failed = self.folder.read_status() == "failed"
        self._package.end_run("FAILED" if failed else "FINISHED")


@final
class SwanLab(Tracked):
    """SwanLab, online or on this machine in RUN/swanlog."""

    package = service = "swanlab"

    def __init__(
        self,
        *,
        project: str,
        mode: Literal["online", "local", "offline", "disabled"] | None,
        workspace: str | None,
    ) -> None:
        """
        Args:
            project: SwanLab project.
            mode: online | local | offline | disabled; null: by SWANLAB_MODE, else online.
            workspace: SwanLab workspace; null: your own.
        """
        super().__init__()
        self.project, self.mode, self.workspace = project, mode, workspace

    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        # console capture would swallow the live progress line
        settings = self._package.Settings(terminal={"proxy_type": "none"})
        run = self.track(
            self.project,
            config,
            name=run_dir.name,
            id=self.id,
            resume="allow",
            group=group_of(run_dir),
            mode=self.mode,
            workspace=self.workspace,
            log_dir=str(run_dir / "swanlog"),
            settings=settings,
        )
        with suppress(ValueError):  # it has a page only online
            save_link(run_dir, "SwanLab", run.url)

    def table(self, iteration: int, name: str, table: SampleTable) -> None:
        """Record the samples as a text in Markdown."""
        self.run.log({name: self._package.Text(table.markdown())}, step=iteration)
