"""What checkpoints cost a run, at the default interval and at one after every iteration.

    python scripts/bench/checkpoint.py
    python scripts/bench/checkpoint.py --rounds 6 algo=grpo
    python scripts/bench/checkpoint.py model=tiny_gpt2

A run saves after every other iteration, and holds a snapshot in those between. What a checkpoint
costs is what the loop waits for it, and the processor time of its writing, which goes on in the
background: as if none of that were hidden. The overhead is that cost over `checkpoint.minutes`, and
the snapshot's over an iteration.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, thread_time

import torch

from rlfactory.border import Border
from rlfactory.request import planned
from rlfactory.run.checkpoint import newest
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import read
from rlfactory.run.writer import Writer
from rlfactory.session import Session

QUIET = ("evaluation.prompts=8", "evaluation.grid=1", "evaluation.preview_every=0")


class TimedWriter(Writer):
    """Notes the processor time of each job."""

    def __init__(self) -> None:
        super().__init__()
        self.wrote: list[float] = []

    def do(self, job: Callable[[], None]) -> None:
        """As always, with a look at the thread's own clock."""

        def timed() -> None:
            begun = thread_time()
            job()
            self.wrote.append(thread_time() - begun)

        super().do(timed)


class TimedBorder(Border):
    """Notes how long the loop stands still for each checkpoint and each snapshot."""

    def __init__(self, border: Border) -> None:
        self.__dict__.update(border.__dict__)
        self.waited, self.held = list[float](), list[float]()
        self.keeper.writer = self.writer = TimedWriter()

    def save(self) -> None:
        """As always, with a look at the clock."""
        begun, saved = perf_counter(), self.keeper.saved
        super().save()
        if self.keeper.saved != saved:
            self.waited.append(perf_counter() - begun)

    def hold(self) -> None:
        """As always, with a look at the clock."""
        begun, snapshot = perf_counter(), self.snapshot
        super().hold()
        if snapshot is not None and snapshot.iteration == self.done:
            self.held.append(perf_counter() - begun)


def measured(words: list[str], iterations: int, place: Path) -> dict[str, float]:
    """Seconds of a run's iterations, checkpoints and snapshots, megabytes, and shares."""
    typed = [*QUIET, *words, f"iterations={iterations}", "checkpoint.every=2"]
    config = {**planned(*typed).config, "run_dir": str(place)}
    folder = RunFolder.create(place)
    session = Session(config, folder)
    session.border = border = TimedBorder(session.border)
    session.run()
    lines = read(folder.metrics)
    iteration = median(float(spent) for line in lines if (spent := line.get("time/iteration")))
    waited, held = median(border.waited), median(border.held)
    wrote = max(border.writer.wrote)
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
    print(f"| overhead where each iteration has one | {found['of_iteration']:.2%} | |")


if __name__ == "__main__":
    main()
