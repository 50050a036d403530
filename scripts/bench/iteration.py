"""The time of an iteration relative to its floor: its forward and backward passes alone.

    python scripts/bench/iteration.py                          # every setting, minutes on one core
    python scripts/bench/iteration.py --only tokens --rounds 5
    python scripts/bench/iteration.py model=tiny_gpt2 algo=rloo # one of your own
    python scripts/bench/iteration.py --wall model=sd35         # on a GPU, synchronised

After each iteration of the trainer its network calls are repeated: forward only if there was no
gradient, else forward and backward. Each ratio compares an iteration with its own floor; the table
has the medians. The clock counts this process's CPU time on one thread, so that other work on the
machine disturbs it little. `total` is the iteration over its floor; `sample`, `score` and `learn`
are the same for its phases.
"""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from floor import Clock, Recorder, floor
from processes import keep

import rlfactory.train.trainer
from rlfactory.config.overrides import plan_from_words
from rlfactory.rollout import Rollout
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import Metrics, NoProgress
from rlfactory.train.trainer import Trainer

PHASES = ("sample", "score", "learn")
SETTINGS = {
    "nft": "model=tiny_sd3 algo=nft",
    "grpo": "model=tiny_sd3 algo=grpo",
    "awm": "model=tiny_sd3 algo=awm",
    "nft, bf16": "model=tiny_sd3 algo=nft precision=bf16",
    "ddpo": "model=tiny_sd algo=ddpo",
    "flux": "model=tiny_flux algo=grpo",
    "tokens": "model=tiny_gpt2 algo=ppo",
}
ITERATION, TOKENS, SAMPLING = 1.15, 1.3, 1.1

Seconds = Mapping[str, float]


@dataclass(frozen=True)
class Round:
    """Seconds of an iteration and of its floor by phase, and the number of network calls."""

    spent: Seconds
    bare: Seconds
    calls: int

    @property
    def ratios(self) -> dict[str, float]:
        """Ratios in total, and for each phase in which a network is called."""
        phases = [phase for phase in PHASES if self.bare.get(phase)]
        total = {"total": self.spent["iteration"] / sum(self.bare.values())}
        return total | {phase: self.spent[phase] / self.bare[phase] for phase in phases}


def clock_of(wall: bool, device: torch.device) -> Clock:
    """The process's CPU time, or wall time after synchronising the device."""
    if not wall:
        return time.process_time

    def synchronised() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


def rounds(words: Sequence[str], count: int, threads: int, wall: bool) -> list[Round]:
    """`count` iterations with their floors, after one for warm-up."""
    own = [] if wall else ["hardware=cpu", f"hardware.threads={threads}"]
    quiet = ["scoring.background=none", f"iterations={count + 1}"]
    config = plan_from_words(*own, *quiet, *words).config
    parts = build(config)
    model = parts.model
    recorder = Recorder(model.device, lambda: model.weights.in_use)
    clock = clock_of(wall, model.device)
    vars(rlfactory.train.trainer)["perf_counter"] = clock
    found: list[Round] = []

    class Phases(NoProgress):
        def phase(self, name: str, *, total: int) -> None:
            recorder.phase = name

    def learning() -> None:
        recorder.phase = "learn"

    def note(iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        del rollout
        names = (*PHASES, "iteration")
        spent = {name: metrics[f"time/{name}"] for name in names}
        calls = recorder.take()
        bare = floor(calls, clock, model.weights)
        recorder.take()  # drop the calls of the floor itself
        if iteration:
            found.append(Round(spent, bare, len(calls)))

    with recorder.recording():
        Trainer(parts, training_budget(config), Phases()).run(note, before_learning=learning)
    return found


def summary(found: Sequence[Round]) -> dict[str, float]:
    """Medians of the seconds of an iteration and its floor, and of the ratios."""
    seconds = {
        "iteration s": median(r.spent["iteration"] for r in found),
        "floor s": median(sum(r.bare.values()) for r in found),
    }
    names = found[0].ratios
    return seconds | {name: median(r.ratios[name] for r in found) for name in names}


def bar(name: str, words: Sequence[str]) -> float:
    """The upper limit of a ratio."""
    if name == "sample":
        return SAMPLING
    draws = plan_from_words(*words).config["dynamics"]["_target_"]
    return TOKENS if draws.endswith(".Token") else ITERATION


def line(cells: Sequence[str]) -> str:
    """A line of Markdown's table."""
    return f"| {' | '.join(cells)} |"


def row(name: str, found: Mapping[str, float], words: Sequence[str]) -> str:
    """The row of a setting; ratios over their limit are marked by `!`."""
    cells = [name, f"{found['iteration s']:.2f}", f"{found['floor s']:.2f}"]
    for ratio in ("total", *PHASES):
        value = found.get(ratio)
        limit = bar(ratio, words) if ratio in ("total", "sample") else float("inf")
        over = " !" if value is not None and value > limit else ""
        cells.append("" if value is None else f"{value:.3f}{over}")
    return line(cells)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--rounds", type=int, default=3, help="measured iterations")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--wall", action="store_true", help="measure wall time, on any device")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    return parser.parse_args()


def main() -> None:
    a = arguments()
    settings = {"yours": " ".join(a.words)} if a.words else {n: SETTINGS[n] for n in a.only}
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}; load of {os.cpu_count()} cores before: {load:.1f}")
    print(line(["", "iteration, s", "floor, s", "total", *PHASES]))
    print(line(["---", *["---:"] * 6]), flush=True)
    record: dict[str, Any] = {"load": load, "torch": torch.__version__}
    for name, text in settings.items():
        measured = rounds(text.split(), a.rounds, a.threads, a.wall)
        found = summary(measured)
        record[name] = {"words": text, "summary": found, "rounds": [vars(r) for r in measured]}
        print(row(name, found, text.split()), flush=True)
        keep(a, **record)


if __name__ == "__main__":
    main()
