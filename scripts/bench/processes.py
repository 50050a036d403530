"""Runs the scripts of this folder as processes that measure themselves."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CONSTRAINTS = HERE.parents[1] / "constraints.txt"
SIZES = ["tiny_gpt2", "gpt2"]


def environment(folder: Path, packages: Sequence[str]) -> Path:
    """The Python of a virtual environment, created with packages in the tested versions."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = ["-m", "pip", "install", "-q", "-c", str(CONSTRAINTS)]
        subprocess.run([str(python), *install, *packages], check=True)
    return python


def call(script: str, *words: str, threads: int, python: Path | str = sys.executable) -> str:
    """The output of a script. A child's peak memory starts at the caller's, so keep that small."""
    quiet = {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [str(python), str(HERE / script), *words],
        env=os.environ | quiet | limits,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{script} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def measure(
    script: str, job: Mapping[str, Any], python: Path | str = sys.executable
) -> dict[str, Any]:
    """The figures that a script prints for a job, as its last line."""
    printed = call(script, json.dumps(job), threads=job["threads"], python=python)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def alternate(
    jobs: Mapping[str, tuple[str, Mapping[str, Any]]], rounds: int, trl_python: Path
) -> dict[str, list[dict[str, Any]]]:
    """The figures of each side's processes, which take turns: those of `*_trl.py` are TRL's."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in jobs}
    for _ in range(rounds):
        for side, (script, job) in jobs.items():
            python = trl_python if script.endswith("_trl.py") else sys.executable
            found[side].append(measure(script, job, python))
            print(f"{side}: {found[side][-1]}", file=sys.stderr, flush=True)
    return found


def keep(asked: argparse.Namespace, **figures: Any) -> None:
    """Write figures and arguments to the file of `--json`, if one was given."""
    if asked.json:
        words = {key: str(v) if isinstance(v, Path) else v for key, v in vars(asked).items()}
        asked.json.write_text(json.dumps({"asked": words, **figures}, indent=1) + "\n")


def make_models(
    folder: str, *, size: str, prompts: int, length: int, threads: int, policy: str | None = None
) -> dict[str, str]:
    """Paths of policy, scorers and prompts, created in `folder`, except a policy that is given."""
    words = [folder, "--size", size, "--prompts", str(prompts), "--length", str(length)]
    given = ["--policy", policy] if policy else []
    call("gpt2_folders.py", *words, *given, threads=threads)
    made = {name: f"{folder}/{name}" for name in ("policy", "reward", "value")}
    return made | {"policy": policy or made["policy"], "prompts": f"{folder}/prompts.txt"}
