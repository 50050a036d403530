"""Jobs through a launcher of Hydra's: other processes, or other machines."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from rlfactory._hydra import CompositionError, launch
from rlfactory.problems import PlanError, Problem
from rlfactory.sweep.pool import Asked, Watcher
from rlfactory.sweep.process import Launch, run_here
from rlfactory.sweep.request import LAUNCHERS, Request
from rlfactory.sweep.status import state_of

log = logging.getLogger(__name__)


def require_launcher(name: str) -> None:
    """PlanError unless a launcher's package is installed."""
    package = LAUNCHERS[name]
    if package and find_spec("hydra_plugins") is not None:
        module = f"hydra_plugins.{package.replace('-', '_')}"
        if find_spec(module) is not None:
            return
    if package:
        message = f"{name} is not installed; type pip install {package}"
        raise PlanError([Problem("hydra/launcher", message)])


class HydraLauncher:
    """Runs launches in waves: those whose former is done go together."""

    def __init__(
        self,
        request: Request,
        folder: Path,
        environments: Sequence[Mapping[str, str]],
        watcher: Watcher,
        asked: Asked,
    ) -> None:
        self.name, self.folder = request.launcher, folder
        self.environments, self.watcher, self.asked = environments, watcher, asked
        # it starts all that it is given at once
        self.room = len(environments) if self.name == "submitit_local" else None
        self.words = [*_parallel(request.launcher, len(environments)), *request.launcher_words]

    def __call__(self, launches: Sequence[Launch]) -> None:
        """Run them; what became of each is what its folder says."""
        left = [one for one in launches if not self._note_done(one)]
        while left and not self.asked:
            wave = [one for one in left if _is_free(one)]
            if not wave:
                break
            wave = wave[: self.room]
            self._run(wave)
            left = [one for one in left if one not in wave]
        for one in [] if self.asked else left:
            self.watcher.change(one.job.name, "blocked")

    def _note_done(self, one: Launch) -> bool:
        done = state_of(one.run) == "done"
        if done:
            self.watcher.change(one.job.name, "done")
        return done

    def _run(self, wave: Sequence[Launch]) -> None:
        for one in wave:
            self.watcher.change(one.job.name, "running")
        work = partial(run_number, [*wave], [*self.environments])
        with _interruptible(self.asked):
            self._launch(work, len(wave))
        for one in wave:
            if not self._note_done(one):
                self.watcher.change(one.job.name, "stopped" if self.asked else "failed")

    def _launch(self, work: Callable[[int], int], count: int) -> None:
        """Hand the work over; what goes wrong with some of it is said, and ends no other."""
        try:
            launch(self.name, self.words, self.folder, work, count)
        except CompositionError as error:
            reason = " ".join(str(error).split())
            raise PlanError([Problem("hydra.launcher", reason)]) from error
        except Exception as error:  # of a plug-in or of the system behind it
            log.exception("hydra/launcher=%s", self.name)
            print(f"hydra/launcher={self.name}: {error}", file=sys.stderr)


def run_number(
    launches: Sequence[Launch], environments: Sequence[Mapping[str, str]], number: int
) -> int:
    """The work of one job, wherever it was brought."""
    return run_here(launches[number], environments[number % len(environments)])


def _is_free(one: Launch) -> bool:
    after = one.job.after
    return after is None or state_of(one.run.parent / after) == "done"


def _parallel(name: str, at_once: int) -> list[str]:
    """How many at once, in a launcher's own words."""
    if name == "joblib":
        return [f"hydra.launcher.n_jobs={at_once}"]
    return [f"hydra.launcher.array_parallelism={at_once}"] if name == "submitit_slurm" else []


@contextmanager
def _interruptible(asked: Asked) -> Iterator[None]:
    """A signal ends what waits for the workers; their jobs are asked to stop as they end."""

    def hear(number: int, frame: FrameType | None) -> None:
        asked.signals.append(number)
        raise KeyboardInterrupt

    former = {n: signal.signal(n, hear) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
