"""What several processes gain: published recipes by arithmetic, the small model by trial.

python scripts/bench/scaling.py              # the table of docs/scaling.md, simulated
python scripts/bench/scaling.py --measure    # one process and two, on this machine's CPU
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from rlfactory.estimate.scaling import Network, Work, efficiency, seconds, unevenness

SUSTAINED = 300.0
"""TFLOP/s of a device, assumed; docs/full_size.md has what an evaluation takes."""
NETWORK = Network(bandwidth=5e10, latency=2e-5)
SD35, FLUX = (2.47, 5.26, 18_776_064), (21.62, 44.89, 52_297_728)  # TFLOP forward, learning; LoRA
RECIPES = {
    # groups, samples of each, updates; evaluations to draw and to learn, and those that compare
    "Flow-GRPO, SD3.5-M, guided": (48, 24, 2, SD35, 2 * 10, 2 * 9, 0),
    "DiffusionNFT, SD3.5-M": (48, 24, 1, SD35, 10, 9, 2 * 9),
    "Flow-GRPO-Fast, FLUX": (48, 24, 2, FLUX, 6, 3, 0),
}
WORDS = [
    *("prompts_per_iteration=8", "group_size=8", "iterations=4", "updates_per_iteration=1"),
    *("evaluation.prompts=2", "evaluation.preview_every=0", "checkpoint.minutes=0"),
]


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


def measured(hardware: list[str]) -> dict[str, float]:
    """Medians of the phases of an iteration, in seconds; the first one is left out."""
    with tempfile.TemporaryDirectory() as folder:
        typed = [sys.executable, "-m", "rlfactory.cli", *WORDS, *hardware, f"run_dir={folder}/run"]
        subprocess.run(typed, check=True, stdout=subprocess.DEVNULL)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if "time/iteration" in record][1:]
    phases = ("sample", "score", "learn", "iteration")
    return {p: statistics.median(record[f"time/{p}"] for record in records) for p in phases}


def measure() -> None:
    two = ["hardware=ddp", "hardware.device=cpu", "hardware.processes=2", "hardware.threads=1"]
    found = {
        "one": measured(["hardware=cpu", "hardware.threads=1"]),
        "ddp": measured(two),
        "fsdp2": measured(["hardware=fsdp2", *two[1:]]),
    }
    print(json.dumps(found, indent=1))
    for name in ("ddp", "fsdp2"):
        gain = found["one"]["iteration"] / found[name]["iteration"]
        print(f"two processes by {name}: {gain:.2f} times as fast")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true")
    measure() if parser.parse_args().measure else simulate()
