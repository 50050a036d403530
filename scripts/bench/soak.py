"""Whether a long run stays as it began: memory, open files, threads, folder, time of an iteration.

    python scripts/bench/soak.py                                  # 2,000 iterations of texts
    python scripts/bench/soak.py --iterations 400 --model images --loggers tensorboard,wandb

A minimal run with evaluations, previews and checkpoints on; wandb writes offline. Every tenth of it
is a row: the median CPU time of an iteration, which other programs do not change much, and resident
memory, open files, threads and folder size at its end. Exit code 1 if the last row's time, memory,
files or threads exceed the third one's, by when all has been used, by more than `--slack`.
"""

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from memory_growth import make_policy

import rlfactory
from rlfactory.train.listeners import Iteration, Listener

MIB = 2**20
ROWS = 10
VOCABULARY = 512
"""Tokens of the random language model of texts."""
SMALL = (
    *("hardware=cpu", "hardware.threads=1", "prompts_per_iteration=1", "group_size=2"),
    *("micro_batch=2", "sample_batch=2", "updates_per_iteration=1", "evaluation.prompts=2"),
    *("evaluation.grid=2", "evaluation.every=20", "evaluation.preview_every=10"),
    *("checkpoint.every=20", "checkpoint.minutes=0"),
)
MODELS = {
    "texts": (
        *("model=tiny_gpt2", "model.path={folder}", "algo=rloo", "reward=length"),
        "dynamics.length=4",
    ),
    # 45 prompts: the memory of a longer list grows by the embeddings of each new one, up to 4 GiB
    "images": (
        *("model=tiny_sd3", "algo=nft", "model.finetune=lora", "schedule.steps=2"),
        *("prompts=animals", "reward=compressibility"),
    ),
}


@dataclass(frozen=True)
class Row:
    """What a process holds after so many iterations."""

    iteration: int
    seconds: float
    memory: float
    files: int
    threads: int
    folder: float

    def __str__(self) -> str:
        return (
            f"| {self.iteration:,} | {1000 * self.seconds:.1f} | {self.memory:.0f} | {self.files} |"
            f" {self.threads} | {self.folder:.2f} |"
        )


class Watch(Listener):
    """Notes a row at the end of every tenth of the run, and prints it."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.every = folder, max(1, count // ROWS)
        self.rows: list[Row] = []
        self._spent: list[float] = []
        self._since = time.process_time()

    def after_iteration(self, iteration: Iteration) -> None:
        """Note the CPU time since the last iteration ended, with all that was done in between."""
        now = time.process_time()
        self._spent.append(now - self._since)
        if iteration.done % self.every == 0:
            self.rows.append(self._row(iteration.done))
            print(self.rows[-1], file=sys.stderr, flush=True)
            self._spent.clear()
        self._since = time.process_time()

    def _row(self, done: int) -> Row:
        gc.collect()
        files = len(os.listdir("/proc/self/fd"))
        threads = len(os.listdir("/proc/self/task"))
        assert threads >= threading.active_count() > 0
        return Row(done, median(self._spent), _resident(), files, threads, _size(self.folder))


def _resident() -> float:
    """MiB of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def _size(folder: Path) -> float:
    """MiB of the files of a folder but for those of loggers, which grow with each iteration."""
    logs = {folder / name for name in ("metrics.jsonl", "tensorboard", "wandb")}
    files = (path for path in folder.rglob("*") if path.is_file())
    return (
        sum(path.stat().st_size for path in files if logs.isdisjoint((path, *path.parents))) / MIB
    )


def run(model: str, count: int, loggers: list[str], folder: Path) -> list[Row]:
    """Train, and return the rows."""
    network = folder.with_name("network")
    if model == "texts":
        make_policy(network, VOCABULARY)
    words = [word.format(folder=network) for word in MODELS[model]]
    words += [*SMALL, f"iterations={count}", f"run_dir={folder}"]
    if loggers:
        words += ["logger=several", f"logger.of=[{','.join(loggers)}]"]
    if "wandb" in loggers:
        words.append("logger.parts.wandb.mode=offline")
    watch = Watch(folder, count)
    output = sys.stdout
    with open(os.devnull, "w", encoding="utf-8") as sys.stdout:
        rlfactory.train(*words, listeners=[watch])
    sys.stdout = output
    return watch.rows


def growth(rows: list[Row]) -> dict[str, float]:
    """The last row's values, as multiples of those of the third, when all has been begun."""
    first, last = rows[2], rows[-1]
    names = ("seconds", "memory", "files", "threads")
    return {name: getattr(last, name) / getattr(first, name) for name in names}


def main() -> int:
    """Print the table; 1 if something grows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--model", choices=MODELS, default="texts")
    parser.add_argument("--loggers", help="default: those that are installed")
    parser.add_argument("--slack", type=float, default=0.25, help="share that may be added")
    asked: Any = parser.parse_args()
    known = [name for name in ("tensorboard", "wandb") if find_spec(name) is not None]
    loggers = known if asked.loggers is None else list(filter(None, asked.loggers.split(",")))
    with tempfile.TemporaryDirectory() as place:
        rows = run(asked.model, asked.iterations, loggers, Path(place) / "run")
    print(f"{asked.model}, {asked.iterations:,} iterations, loggers: {', '.join(loggers)}")
    print("| iteration | CPU ms an iteration | memory, MiB | open files | threads | folder, MiB |")
    print("|---|---|---|---|---|---|")
    print("\n".join(map(str, rows)))
    found = growth(rows)
    told = ", ".join(f"{name} x{value:.2f}" for name, value in found.items())
    print(f"the last row beside the third: {told}")
    return int(max(found.values()) > 1 + asked.slack)


if __name__ == "__main__":
    sys.exit(main())
