"""Jobs by Hydra: its command line with multiruns, and its launchers."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from omegaconf import DictConfig

from rlfactory.config._hydra import VERSION, initialised, note_variables, register_plugins
from rlfactory.config.paths import packaged_folder


@dataclass(frozen=True)
class _NumberedTask:
    """A task function for Hydra's launchers that calls `work` with the number of its job."""

    work: Callable[[int], int]

    def __call__(self, config: DictConfig) -> int:
        return self.work(config.number)


def run_with_hydra_launcher(
    launcher: str, words: Sequence[str], folder: Path, work: Callable[[int], int], count: int
) -> list[Any]:
    """Run `work(0)` ... `work(count - 1)` with a launcher plug-in of Hydra.

    Args:
        launcher: the option of `hydra/launcher`.
        words: further overrides of Hydra's configuration.
        folder: where the launcher writes its own files.
        work: what each job does; may be pickled.
        count: the number of jobs.

    Returns:
        What each job returned or raised.
    """
    quoted = str(folder.resolve()).replace("'", "\\'")
    overrides = [
        *(f"hydra/launcher={launcher}", "hydra/job_logging=none", "hydra/hydra_logging=none"),
        *(f"hydra.sweep.dir='{quoted}'", "hydra.sweep.subdir=.", "hydra.output_subdir=null"),
        *("hydra.job.chdir=false", *words),
    ]
    with initialised():
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration(None, overrides, hydra.types.RunMode.MULTIRUN)
        context = hydra.types.HydraContext(config_loader=loader, callbacks=Callbacks(config))
        plugin = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=_NumberedTask(work), config=config
        )
        jobs = [[f"+number={number}"] for number in range(count)]
        return [job._return_value for job in plugin.launch(jobs, initial_job_idx=0)]


def main(task: Callable[[list[str], Path, int], None], argv: Sequence[str]) -> None:
    """Run Hydra's command line (multirun, `--cfg`, completion).

    Args:
        task: called for each job with its overrides, the folder of the multirun, and the number of
            the job from 0.
        argv: the words of the command line.
    """
    register_plugins()
    note_variables(argv)

    def job(config: DictConfig) -> None:
        hydra_config = HydraConfig.get()
        sweep = Path(hydra_config.sweep.dir)
        task(list(hydra_config.overrides.task), sweep, int(hydra_config.job.num))

    sys.argv = ["rlfactory", *argv]
    folder = str(packaged_folder("conf").resolve())
    hydra.main(config_path=folder, config_name="config", **VERSION)(job)()
