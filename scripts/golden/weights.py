"""The golden weights: what three iterations of each algorithm make of a small model.

python scripts/golden/weights.py         # write tests/data/golden/weights.jsonl
python scripts/golden/weights.py nft ppo # print what these algorithms give here

A refactoring must not change a bit: tests/train/test_golden_weights.py compares. Each algorithm
learns in two layouts of its batches; a run that pauses after two iterations and is resumed must end
with the same bits. Another kind of CPU or version of torch adds in another order, so hashes are
compared only where both are those of the file's first line; how far the weights have moved is
compared everywhere.
"""

import argparse
import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

import rlfactory as rl
from rlfactory.config.options import options
from rlfactory.report import results
from rlfactory.train.components import Components
from rlfactory.train.listeners import Listener, Summary

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "data" / "golden" / "weights.jsonl"
PAIRS = ROOT / "tests" / "data"
LAYOUTS = {
    "whole": ("micro_batch=8", "sample_batch=8"),
    "split": ("micro_batch=2", "sample_batch=4"),
}
"""Micro-batches that hold an update's items, and ones that are accumulated."""
COMMON = (
    *("hardware=cpu", "iterations=3", "prompts_per_iteration=2", "group_size=4"),
    *("updates_per_iteration=2", "checkpoint.background=false", "checkpoint.minutes=0"),
    *("evaluation.prompts=1", "evaluation.preview_every=0", "scoring.background=none"),
)
IMAGES = ("model=tiny_sd3", "reward=compressibility", "schedule.steps=4", "evaluation.steps=1")
TEXTS = ("model=tiny_gpt2", "reward=length", "dynamics.length=8")
GRADIENT = ("updates_per_iteration=1", "reward=jpeg_standin")
OWN: Mapping[str, tuple[str, ...]] = {
    "sft": (
        *("group_size=1", "prompts_per_iteration=8", "algo.column=chosen"),
        *("prompts=file", f"prompts.path={PAIRS / 'pairs.jsonl'}"),
    ),
    "dpo": (
        *("group_size=2", "prompts_per_iteration=4"),
        *("prompts=file", f"prompts.path={PAIRS / 'pairs.jsonl'}"),
    ),
    **dict.fromkeys(("online_dpo", "raft"), ("group_size=2", "prompts_per_iteration=8")),
    "branch_grpo": ("branches=4", "tree.splits=[0,1]"),
    "cppo": ("algo.clip_range=0.03",),  # its limits then differ from DPPO's in what they leave out
    "opd": ("algo.teachers=[zoo:tiny_digits]",),
    "opd_token": (f"algo.teachers=[{PAIRS / 'teacher_gpt2'}]",),
    "ddpo_sf": ("updates_per_iteration=1",),
    "draft": (*GRADIENT, "algo.last_steps=2", "algo.truncation=random"),
    "refl": (*GRADIENT, "algo.begin=0.25"),
    "diffusion_dpo_offline": (
        "group_size=2",
        "prompts=file",
        f"prompts.path={PAIRS / 'image_pairs.jsonl'}",
    ),
}
"""What an algorithm needs beside the words of its kind."""


class _Kept(Listener):
    """Keeps the trained parameters as they are at the start and at the end."""

    def before_training(self, components: Components, done: int) -> None:
        self._parameters = components.model.weights.parameters
        self.first = {name: p.detach().clone() for name, p in self._parameters.items()}

    def after_training(self, summary: Summary) -> None:
        self.weights = {name: p.detach().clone() for name, p in self._parameters.items()}


def machine() -> dict[str, str]:
    """What the bits of a sum depend on."""
    path = Path("/proc/cpuinfo")
    found = re.search(r"vendor_id\s*: (\S+)", path.read_text()) if path.exists() else None
    return {
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cpu": found[1] if found else platform.machine(),
        "torch": torch.__version__.partition("+")[0],
    }


def words_of(algorithm: str, layout: str) -> list[str]:
    """The words of a run. The model's kind is the only one of which the algorithm is an option."""
    own = (*OWN.get(algorithm, ()), *LAYOUTS[layout])
    kind = TEXTS if _learns_from_texts(algorithm) else IMAGES
    given = {word.partition("=")[0] for word in own}
    common = [word for word in (*kind, *COMMON) if word.partition("=")[0] not in given]
    return [f"algo={algorithm}", *common, *own]


def _learns_from_texts(algorithm: str) -> bool:
    text = options("algo")[algorithm].read_text()
    return "override /dynamics: token" in text


def trained(words: list[str], *, pause: int | None = None) -> dict[str, Any]:
    """Hash and norm of the weights that a run ends with, and of their change in its process.

    Args:
        words: of the run.
        pause: the iterations after which it is left, and resumed as a run of its own.
    """
    threads, draw = torch.get_num_threads(), results.draw_run
    torch.set_num_threads(1)
    results.draw_run = lambda folder, *_: folder.page
    try:
        with tempfile.TemporaryDirectory() as folder:
            own, kept = [*words, f"run_dir={folder}/run"], _Kept()
            if pause is not None:
                rl.train(*own, until=pause)
            rl.train(*own, listeners=[kept])
    finally:
        torch.set_num_threads(threads)
        results.draw_run = draw
    return summary(kept.first, kept.weights)


def summary(first: Mapping[str, torch.Tensor], last: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """What is stored: a hash of names and bits, the norm, and the norm of the change."""
    found = sha256()
    for name, value in sorted(last.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.contiguous().view(torch.uint8).numpy().tobytes())
    before, after = (torch.cat([w.double().flatten() for w in s.values()]) for s in (first, last))
    norm, moved = after.norm().item(), (after - before).norm().item()
    return {"sha256": found.hexdigest(), "norm": norm, "moved": moved}


def stored() -> tuple[dict[str, str], dict[tuple[str, str], dict[str, Any]]]:
    """The machine that wrote the file, and what it found by algorithm and layout."""
    first, *lines = map(json.loads, FILE.read_text().splitlines())
    return first, {(line.pop("algo"), line.pop("layout")): line for line in lines}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("algorithms", nargs="*", help="print those of these algorithms")
    arguments = parser.parse_args()
    lines = [] if arguments.algorithms else [machine()]
    for algorithm in arguments.algorithms or options("algo"):
        for layout in LAYOUTS:
            found = trained(words_of(algorithm, layout))
            lines.append({"algo": algorithm, "layout": layout, **found})
            print(json.dumps(lines[-1]), flush=True)
    if not arguments.algorithms:
        FILE.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    raise SystemExit(main())
