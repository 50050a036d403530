"""Run jobs with one of Hydra's launchers: in other processes, or on other machines."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType

from rlfactory.config._hydra import CompositionError, run_with_hydra_launcher
from rlfactory.config.problems import PlanError, Problem
from rlfactory.sweep.arguments import LAUNCHERS, SweepArguments, is_installed
from rlfactory.sweep.folder import state_of
from rlfactory.sweep.process import JobCommand, StopRequest, SweepListener, run_here
from rlfactory.utils.processes import signal_handlers

log = logging.getLogger(__name__)


def require_launcher(name: str) -> None:
    """PlanError unless a launcher's package is installed."""
    package = LAUNCHERS[name]
    if package and not is_installed(package):
        message = f"{name} is not installed; type pip install {package}"
        raise PlanError([Problem("hydra/launcher", message)])


class HydraLauncher:
    """Runs jobs in waves: each wave has the jobs whose earlier stage is done."""

    def __init__(
        self,
        request: SweepArguments,
        folder: Path,
        environments: Sequence[Mapping[str, str]],
        watcher: SweepListener,
        asked: StopRequest,
    ) -> None:
        self.name, self.folder = request.launcher, folder
        self.environments, self.watcher, self.asked = environments, watcher, asked
        # submitit_local starts all jobs of a wave at the same time
        self.most_at_once = len(environments) if self.name == "submitit_local" else None
        self.words = [*_parallel(request.launcher, len(environments)), *request.launcher_words]

    def __call__(self, launches: Sequence[JobCommand]) -> None:
        """Run jobs; the outcome of each is the status in its folder."""
        left = [command for command in launches if not self._note_done(command)]
        while left and not self.asked:
            wave = [command for command in left if command.can_start]
            if not wave:
                break
            wave = wave[: self.most_at_once]
            self._run(wave)
            left = [command for command in left if command not in wave]
        for command in [] if self.asked else left:
            self.watcher.change(command.job.name, "blocked")

    def _note_done(self, command: JobCommand) -> bool:
        done = state_of(command.run) == "done"
        if done:
            self.watcher.change(command.job.name, "done")
        return done

    def _run(self, wave: Sequence[JobCommand]) -> None:
        for command in wave:
            self.watcher.change(command.job.name, "running")
        work = partial(run_number, [*wave], [*self.environments])
        with _interruptible(self.asked):
            self._launch(work, len(wave))
        for command in wave:
            if not self._note_done(command):
                self.watcher.change(command.job.name, "stopped" if self.asked else "failed")

    def _launch(self, work: Callable[[int], int], count: int) -> None:
        """Start the launcher; an error of it is printed, so that later waves still run."""
        try:
            run_with_hydra_launcher(self.name, self.words, self.folder, work, count)
        except CompositionError as error:
            reason = " ".join(str(error).split())
            raise PlanError([Problem("hydra.launcher", reason)]) from error
        except Exception as error:  # from a plug-in or its scheduler: of any type
            log.exception("hydra/launcher=%s", self.name)
            print(f"hydra/launcher={self.name}: {error}", file=sys.stderr)


def run_number(
    launches: Sequence[JobCommand], environments: Sequence[Mapping[str, str]], number: int
) -> int:
    """Run one job of a wave, where the launcher has started this."""
    return run_here(launches[number], environments[number % len(environments)])


def _parallel(name: str, at_once: int) -> list[str]:
    """The launcher's own option for the number of jobs at once."""
    if name == "joblib":
        return [f"hydra.launcher.n_jobs={at_once}"]
    return [f"hydra.launcher.array_parallelism={at_once}"] if name == "submitit_slurm" else []


@contextmanager
def _interruptible(asked: StopRequest) -> Iterator[None]:
    """Let a signal interrupt the wait for workers; their jobs are asked to stop as they end."""

    def note(number: int, frame: FrameType | None) -> None:
        asked.signals.append(number)
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), signal_handlers(note, (signal.SIGINT, signal.SIGTERM)):
        yield
