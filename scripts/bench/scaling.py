"""The speed-up by several processes: simulated for published recipes, measured on tiny_sd3.

    python scripts/bench/scaling.py              # simulated speed-ups (docs/scaling.md)
    python scripts/bench/scaling.py --measure    # one process and two, on this machine's CPU

Three short runs of the default experiment, one thread per process: one process, two by DDP, two by
FSDP2. They take about a minute if two cores are free; if not, two processes share a core that one
has to itself, and the ratios mean nothing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from processes import keep
from scaling_model import Network, Work, efficiency, seconds, unevenness

SUSTAINED = 300.0
"""Assumed TFLOP/s of a device; docs/full_size.md has the FLOPs of an evaluation."""
NETWORK = Network(bandwidth=5e10, latency=2e-5)
SD35, FLUX = (2.47, 5.26, 18_776_064), (21.62, 44.89, 52_297_728)  # TFLOP forward, learning; LoRA
RECIPES = {
    # groups, samples per group, updates; evaluations to sample, to learn and to compare
    "Flow-GRPO, SD3.5-M, guided": (48, 24, 2, SD35, 2 * 10, 2 * 9, 0),
    "DiffusionNFT, SD3.5-M": (48, 24, 1, SD35, 10, 9, 2 * 9),
    "Flow-GRPO-Fast, FLUX": (48, 24, 2, FLUX, 6, 3, 0),
}
WORDS = [
    *("prompts_per_iteration=4", "group_size=8", "iterations=4", "updates_per_iteration=1"),
    *("evaluation.prompts=2", "evaluation.preview_every=0", "checkpoint.minutes=0"),
    *("checkpoint.snapshot=false", "scoring.background=none", "hardware.threads=1"),
]
PHASES = ("sample", "score", "learn", "iteration")
TWO = ["hardware.device=cpu", "hardware.processes=2"]
SIDES = {
    "one process": ["hardware=cpu"],
    "two, DDP": ["hardware=ddp", *TWO],
    "two, FSDP2": ["hardware=fsdp2", *TWO],
}


def work_of(name: str) -> Work:
    groups, size, updates, (forward, learning, adapters), draw, learn, compare = RECIPES[name]
    return Work(
        groups=groups,
        size=size,
        updates=updates,
        draw=draw * forward / SUSTAINED,
        learn=(learn * learning + compare * forward) / SUSTAINED,
        gradient=4.0 * adapters,
    )


def simulate() -> None:
    head = "recipe | processes | groups each | samples each | s | busiest | efficiency"
    print(f"| {head} | by even shares |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in RECIPES:
        work = work_of(name)
        for count in (1, 8, 16, 24, 48):
            row = [name, count, work.groups // count, work.samples // count]
            row += [f"{seconds(work, NETWORK, count):.0f}", f"{unevenness(work, count):.2f}"]
            even = efficiency(replace(work, is_even=True), NETWORK, count)
            row += [f"{efficiency(work, NETWORK, count):.0%}", f"{even:.0%}"]
            print(f"| {' | '.join(map(str, row))} |")


def measured(hardware: Sequence[str], timeout: float) -> dict[str, float]:
    """Medians of the phases of an iteration, in seconds, without the first iteration."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*hardware, *WORDS, f"run_dir={folder}/run"]
        typed = [sys.executable, "-m", "rlfactory.cli", *words]
        subprocess.run(typed, check=True, stdout=subprocess.DEVNULL, timeout=timeout)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if "time/iteration" in record][1:]
    return {p: statistics.median(record[f"time/{p}"] for record in records) for p in PHASES}


def row(name: str, found: Mapping[str, float], one: Mapping[str, float]) -> str:
    """Seconds of each phase, and the speed-up over one process."""
    cells = [f"{found[p]:.2f} ({one[p] / found[p]:.2f} x)" for p in PHASES]
    return f"| {' | '.join([name, *cells])} |"


def measure(timeout: float) -> dict[str, dict[str, float]]:
    """The figures of all settings, printed as they come."""
    load = os.getloadavg()[0]
    print(f"load of {os.cpu_count()} cores before: {load:.1f}; seconds, and times as fast as one")
    print(f"| | {' | '.join(PHASES)} |\n|---|{'---:|' * len(PHASES)}", flush=True)
    found: dict[str, dict[str, float]] = {}
    for name, hardware in SIDES.items():
        found[name] = measured(hardware, timeout)
        print(row(name, found[name], found["one process"]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds per run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    a = parser.parse_args()
    if not a.measure:
        simulate()
        return
    keep(a, measured=measure(a.timeout))


if __name__ == "__main__":
    main()
