"""The time of `rlfactory report` on many generated runs, in the format that training writes.

    python scripts/bench/report.py [--runs 200] [--lines 1000] [--rows 20]

Prints the seconds of the full command, in a new process, with all output formats.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

from rlfactory.config.overrides import plan_from_words
from rlfactory.run.scores import Scores

METRICS = (
    *("diversity/pairwise", "reward/shapes/mean", "reward/shapes/std", "reward/shapes/group_std"),
    *("reward/shapes/failed", "reward/shapes_strict/mean", "reward/shapes_strict/std"),
    *("reward/shapes_strict/group_std", "reward/shapes_strict/failed", "advantage/std"),
    *("advantage/zero_groups", "loss/total", "loss/policy", "kl/reference", "kl/old", "grad/norm"),
    *("ratio/mean", "ratio/clip_fraction", "ratio/max_dev", "ratio/first_max_dev", "kl/approx"),
    *("old/decay", "optimizer/lr", "nfe/sample", "nfe/compare", "nfe/train", "nfe/total"),
    *("time/sample", "time/score", "time/learn", "time/iteration", "memory/peak_gb"),
)
EVERY = 50
PROMPTS = 64


def make_run(path: Path, row: int, seed: int, lines: int) -> None:
    """Write a folder like that of a run of `lines` iterations."""
    plan = plan_from_words("model=tiny_sd3", f"seed={seed}", f"optimizer.lr={1e-4 * (row + 1):.4g}")
    (path / "evaluations").mkdir(parents=True)
    content = {**plan.config, "iterations": lines, "choices": dict(plan.choices)}
    (path / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    (path / "STATUS").write_text("done\n")
    rng = np.random.default_rng((row, seed))
    values = rng.normal(size=(lines, len(METRICS)))
    with (path / "metrics.jsonl").open("w") as file:
        for i in range(lines + 1):
            if i:
                named = dict(zip(METRICS, values[i - 1].tolist(), strict=True))
                file.write(json.dumps({"iteration": i, "time": 1.5 * i, **named}) + "\n")
            if i % EVERY == 0:
                scores = {f"eval/{name}/mean": rng.random() for name in ("shapes", "shapes_strict")}
                line = {"iteration": i, "time": 1.5 * i, **scores, "eval/diversity": 0.2}
                file.write(json.dumps(line) + "\n")
    for i in (0, lines):
        found = {"shapes": rng.random(PROMPTS)}
        prompts = [f"prompt {n}" for n in range(PROMPTS)]
        Scores(prompts, found).save(path / "evaluations" / f"{i:06d}.json")


def main() -> None:
    """Generate runs, report them, and print the seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--format", default="terminal,markdown,csv,latex,html")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number in range(a.runs):
            row, seed = number % a.rows, number // a.rows
            make_run(root / f"run-{row}-s{seed}", row, seed, a.lines)
        size = sum(p.stat().st_size for p in root.rglob("metrics.jsonl")) / 1e6
        began = time.perf_counter()
        words = ["report", str(root), "--out", str(root / "report"), "--format", a.format]
        done = subprocess.run(
            [sys.executable, "-m", "rlfactory.cli", *words], capture_output=True, text=True
        )
        seconds = time.perf_counter() - began
        print(done.stdout[-600:], done.stderr[-2000:])
        print(f"{a.runs} runs of {a.lines} lines ({size:.0f} MB): {seconds:.1f} s")


if __name__ == "__main__":
    main()
