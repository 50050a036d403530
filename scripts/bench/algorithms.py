"""Compares all image algorithms on the small shipped model: scores and cost.

    python scripts/bench/algorithms.py FOLDER --jobs 2        # runs what has not run, then reports
    python scripts/bench/algorithms.py FOLDER --study shapes  # or minutes, jpeg
    python scripts/bench/algorithms.py FOLDER --report        # tables and figures of what has run

A run is `rlfactory WORDS seed=S` in FOLDER/STUDY/NAME-sS; finished runs are skipped. Writes
FOLDER/results.md with the tables, and a figure for each study.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from results import figure, table

from rlfactory.run.folder import RunFolder

STEPWISE = {
    "ddpo_sf": "algo=ddpo_sf",
    "ddpo": "algo=ddpo",
    "grpo": "algo=grpo",
    "grpo, tempflow": "algo=grpo algo.weighting=tempflow",
    "grpo, branches": "algo=grpo branches=4 window.steps=[2,3,4]",
    "grpo, moving window": "algo=grpo window=progressive window.size=2 window.iterations=5",
    "grpo, dance_sde": "algo=grpo dynamics=dance_sde dynamics.eta=1.0",
    "grpo, cps": "algo=grpo dynamics=cps",
    "grpo_guard": "algo=grpo_guard",
    "flow_dppo": "algo=flow_dppo",
    "branch_grpo": "algo=branch_grpo prompts_per_iteration=6",
}


@dataclass(frozen=True)
class Study:
    """Runs to compare: command-line `words` by name, for each of `seeds`, compared by `score`."""

    score: str
    words: Mapping[str, str]
    seeds: tuple[int, ...] = (0, 1, 2)


STUDIES = {
    "shapes": Study("shapes_strict", {name: f"algo={name}" for name in ("nft", "awm", "vgrpo")}),
    "minutes": Study("shapes_strict", {"awm": "algo=awm max_minutes=4.5"}),
    "jpeg": Study(
        "compressibility",
        {
            name: f"{words} reward=compressibility iterations=12 group_size=12"
            " evaluation.prompts=128"
            for name, words in STEPWISE.items()
        },
    ),
}


def commands(study: Study, folder: Path) -> Iterator[tuple[RunFolder, list[str]]]:
    """The runs of a study and their words."""
    for name, text in study.words.items():
        for seed in study.seeds:
            path = folder / f"{name.replace(', ', '+').replace(' ', '_')}-s{seed}"
            yield RunFolder(path), [*text.split(), f"seed={seed}", f"run_dir={path}"]


def run(found: tuple[RunFolder, list[str]], threads: int) -> None:
    """Run one, unless it is finished."""
    folder, words = found
    if folder.summary.exists():
        return
    done = subprocess.run(
        [sys.executable, "-m", "rlfactory.cli", *words],
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        check=False,
    )
    print(folder.path.name, done.stderr[-500:] if done.returncode else "done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--study", choices=STUDIES, action="append")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--threads", type=int, default=1, help="of each run")
    parser.add_argument("--report", action="store_true", help="run nothing")
    a = parser.parse_args()
    chosen = a.study or [*STUDIES]
    if not a.report:
        waiting = [found for name in chosen for found in commands(STUDIES[name], a.folder / name)]
        with ThreadPoolExecutor(a.jobs) as pool:
            list(pool.map(lambda found: run(found, a.threads), waiting))
    pages = []
    for name in chosen:
        study = STUDIES[name]
        runs = {
            label: [
                folder for folder, _ in commands(part, a.folder / name) if folder.summary.exists()
            ]
            for label, words in study.words.items()
            for part in [Study(study.score, {label: words}, study.seeds)]
        }
        known = {label: folders for label, folders in runs.items() if folders}
        if known:
            pages += [f"## {name}", "", *table(known, study.score), ""]
            figure(known, study.score, a.folder / f"{name}.png")
    (a.folder / "results.md").write_text("\n".join(pages), encoding="utf-8")
    print("\n".join(pages))


if __name__ == "__main__":
    main()
