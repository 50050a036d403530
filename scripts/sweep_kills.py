"""Kills a real sweep at random times and repeats the command: `scripts/sweep_kills.py --kills 20`.

Each job must be done exactly once, and all that it leaves must be, to the last bit, what the same
sweep leaves undisturbed. Runs are the smallest there are: an image generator, a language model, and
two stages of which the second begins with the weights of the first.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SMALL = "prompts_per_iteration=2, group_size=4, updates_per_iteration=2, evaluation.prompts=4"
FILE = f"""
# The smallest real runs, to be killed
about: {{title: Kills, paper: none, table: none, gpu_hours: null, ran: '', tolerance: none}}
columns: {{shapes: {{tiny: eval/shapes}}}}
sizes: {{tiny: [{SMALL}, checkpoint.every=1, evaluation.preview_every=1, hardware=cpu]}}
rows:
  - name: images
    overrides: [model=tiny_sd3, algo=nft, iterations=3, schedule.steps=4, evaluation.grid=4]
  - name: texts
    overrides: [model=tiny_gpt2, iterations=4, dynamics.length=8]
  - name: stages
    overrides: [model=tiny_sd3, schedule.steps=4, evaluation.grid=4, iterations=2]
    stages: [[algo=nft], [algo=grpo]]
"""
CLOCKS = ("time", "memory")


def main() -> int:
    """Run it whole, then kill it; returns 1 unless both are the same."""
    a = _arguments()
    a.folder.mkdir(parents=True, exist_ok=True)
    (a.folder / "kills.yaml").write_text(FILE, encoding="utf-8")
    began = time.monotonic()
    if command(a.folder, "whole").wait() != 0:
        return 1
    took, whole = time.monotonic() - began, traces(a.folder / "whole")
    within = a.within or took / 3
    print(f"undisturbed: {len(whole)} jobs in {took:.0f} s", flush=True)
    chance, killed, rounds, wrong = random.Random(a.seed), 0, 0, 0
    while killed < a.kills:
        name = f"torn_{rounds}"
        rounds += 1
        while killed < a.kills:
            if not kill_after(command(a.folder, name), chance.uniform(0.5, within)):
                break  # it came to its end before
            killed += 1
            print(f"kill {killed} in {name}: {states(a.folder / name)}", flush=True)
        if (code := command(a.folder, name).wait()) != 0:
            print(f"{name} ended with {code}")
            wrong += 1
        wrong += compare(name, whole, traces(a.folder / name))
    print(f"{killed} kills in {rounds} sweeps; {wrong} differences")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", type=float, help="seconds, at most, to a kill")
    parser.add_argument("--folder", type=Path, required=True, help="where all of it is kept")
    return parser.parse_args()


def command(folder: Path, name: str) -> "subprocess.Popen[bytes]":
    """The sweep's command, begun; what it prints goes to a file."""
    words = ["sweep", "./kills.yaml", "size=tiny", "jobs=2", f"sweep_dir={name}"]
    with (folder / f"{name}.txt").open("ab") as out:
        line = [sys.executable, "-m", "rlfactory.cli", *words]
        return subprocess.Popen(line, cwd=folder, stdout=out, stderr=out)


def kill_after(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """SIGKILL after so long; false if it ended by itself before."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def states(sweep: Path) -> str:
    """How far the jobs are, in a line."""
    found = sorted(sweep.glob("*/STATUS"))
    return ", ".join(f"{p.parent.name} {p.read_text().strip()}" for p in found) or "none begun"


def traces(sweep: Path) -> dict[str, dict[str, Any]]:
    """All that the jobs of a sweep leave, by job, but for clocks."""
    jobs = json.loads((sweep / "sweep.json").read_text(encoding="utf-8"))["jobs"]
    return {job["name"]: trace(sweep / job["folder"]) for job in jobs}


def trace(run: Path) -> dict[str, Any]:
    """Status, metrics without clocks, and hashes of weights, moments, scores and pictures."""
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    found: dict[str, Any] = {"STATUS": (run / "STATUS").read_text()}
    found["metrics"] = [{k: v for k, v in x.items() if not k.startswith(CLOCKS)} for x in lines]
    newest = max(run.glob("checkpoints/step_*"))
    files = [*newest.glob("*.safetensors"), *run.glob("evaluations/*"), *run.rglob("samples/*.png")]
    return found | {
        str(p.relative_to(run)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(files)
    }


def compare(name: str, whole: dict[str, Any], torn: dict[str, Any]) -> int:
    """How many of the jobs differ, each with what does."""
    wrong = 0
    for job in sorted(whole.keys() | torn.keys()):
        a, b = whole.get(job, {}), torn.get(job, {})
        if differing := [key for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]:
            print(f"{name}/{job} differs in {', '.join(differing)}")
            wrong += 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
