"""The overhead of checkpoints, at the default interval and after every iteration.

    python scripts/bench/checkpoint.py
    python scripts/bench/checkpoint.py --rounds 6 algo=grpo
    python scripts/bench/checkpoint.py model=tiny_gpt2

A run saves after every other iteration, and takes a snapshot in those between. The cost of a
checkpoint is the time that the loop waits for it plus the processor time of its writing, which is
in the background: an upper bound, as if nothing of that were hidden. The overhead is this cost over
`checkpoint.minutes`, plus the snapshot's over an iteration.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, thread_time

import torch

from rlfactory.config.overrides import plan_from_words
from rlfactory.run.checkpoint.find import newest
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import read
from rlfactory.train.checkpointing.savepoint import BackgroundWriter, Savepoint
from rlfactory.train.session import Session

QUIET = ("evaluation.prompts=8", "evaluation.grid=1", "evaluation.preview_every=0")


class TimedWriter(BackgroundWriter):
    """Notes the processor time of each job."""

    def __init__(self) -> None:
        super().__init__()
        self.wrote: list[float] = []

    def do(self, job: Callable[[], None]) -> None:
        """Run the job and time it by the thread's own clock."""

        def timed() -> None:
            begun = thread_time()
            job()
            self.wrote.append(thread_time() - begun)

        super().do(timed)


class SavepointTimes:
    """Measures how long the loop stands still for each checkpoint and each snapshot of a run."""

    def __init__(self, savepoint: Savepoint) -> None:
        self.savepoint, self._save, self._take = savepoint, savepoint.save, savepoint.take_snapshot
        self.waited, self.held = list[float](), list[float]()
        savepoint.manager.writer = self.writer = TimedWriter()
        vars(savepoint).update(save=self.save, take_snapshot=self.take_snapshot)

    def save(self) -> None:
        """Save a checkpoint, with a look at the clock."""
        begun, saved = perf_counter(), self.savepoint.manager.saved
        self._save()
        if self.savepoint.manager.saved != saved:
            self.waited.append(perf_counter() - begun)

    def take_snapshot(self) -> None:
        """Take a snapshot, with a look at the clock."""
        begun, snapshot = perf_counter(), self.savepoint.snapshot
        self._take()
        if snapshot is not None and snapshot.iteration == self.savepoint.done:
            self.held.append(perf_counter() - begun)


def measured(words: list[str], iterations: int, place: Path) -> dict[str, float]:
    """Seconds of a run's iterations, checkpoints and snapshots, megabytes, and shares."""
    typed = [*QUIET, *words, f"iterations={iterations}", "checkpoint.every=2"]
    config = {**plan_from_words(*typed).config, "run_dir": str(place)}
    folder = RunFolder.create(place)
    session = Session(config, folder)
    times = SavepointTimes(session.savepoint)
    session.run()
    lines = read(folder.metrics)
    iteration = median(float(spent) for line in lines if (spent := line.get("time/iteration")))
    waited, held = median(times.waited), median(times.held)
    wrote = max(times.writer.wrote)
    last = newest(folder.checkpoints)
    assert last is not None
    return {
        "iteration": iteration,
        "waited": waited,
        "wrote": wrote,
        "held": held,
        "megabytes": sum(p.stat().st_size for p in last.rglob("*") if p.is_file()) / 1e6,
        "of_interval": (waited + wrote) / (60 * config["checkpoint"]["minutes"]) + held / iteration,
        "of_iteration": (waited + wrote) / iteration,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    a, words = parser.parse_known_args()
    torch.set_num_threads(a.threads)
    with TemporaryDirectory() as folder:
        found = measured(words, a.iterations, Path(folder) / "run")
    print(json.dumps({"overrides": words, **found}, indent=1))
    print("\n| what | | wanted |\n|---|---:|---|")
    print(f"| an iteration | {found['iteration']:.2f} s | |")
    print(f"| a checkpoint: the loop waits | {1000 * found['waited']:.0f} ms | |")
    print(f"| it is written in the background | {1000 * found['wrote']:.0f} ms | |")
    print(f"| a snapshot | {1000 * found['held']:.0f} ms | |")
    print(f"| a checkpoint's size | {found['megabytes']:.1f} MB | |")
    print(
        f"| overhead at the default interval, snapshots too | {found['of_interval']:.2%} | < 2 % |"
    )
    print(f"| overhead with a checkpoint after each iteration | {found['of_iteration']:.2%} | |")


if __name__ == "__main__":
    main()
