"""How an iteration's memory scales: with batch and length of texts, but not with the vocabulary;
not with the sampling steps of images.

    python scripts/bench/memory_growth.py                        # both, minutes on one core
    python scripts/bench/memory_growth.py --only images --algo grpo

Each row is a separate process. The figure is the peak resident memory of an iteration, minus what
was resident before it, and minus gradient and Adam's moments, which are known exactly: the memory
of the computation itself. Linux tracks the peak, and resets it on request.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from processes import keep
from sides import machine, parser

VOCABULARIES = (4096, 16384, 65536, 262144)
BATCHES = ((16, 32), (32, 32), (64, 32), (32, 64))
STEPS = (10, 20, 40)
ALGORITHMS = {
    "nft": ["algo=nft"],
    "grpo": ["algo=grpo", "window=fixed", "window.steps=[0,1,2]"],
}
SMALL = {"n_layer": 2, "n_embd": 64, "n_head": 2, "n_positions": 256}
MIB = 2**20

Job = Mapping[str, Any]


def token_jobs() -> Iterator[tuple[str, Job]]:
    """Jobs by vocabulary, then by batch and length; an update is one micro-batch."""
    for size in VOCABULARIES:
        yield f"vocabulary {size:,}", token_job(size, 32, 32)
    for batch, length in BATCHES:
        yield f"{batch} responses of {length} tokens", token_job(4096, batch, length)


def token_job(vocabulary: int, batch: int, length: int) -> Job:
    words = [
        *("model=tiny_gpt2", "model.path={folder}", "reward=length", "hardware=cpu"),
        *("dynamics.stop_at_end=false", f"dynamics.length={length}", "updates_per_iteration=1"),
        *(f"prompts_per_iteration={batch}", f"micro_batch={batch}", f"sample_batch={batch}"),
    ]
    return {"words": words, "vocabulary": vocabulary}


def image_jobs(algorithms: Sequence[str]) -> Iterator[tuple[str, Job]]:
    """Jobs by sampling steps, for each algorithm."""
    for name in algorithms:
        for steps in STEPS:
            words = [*ALGORITHMS[name], f"schedule.steps={steps}", "hardware=cpu"]
            words += ["prompts_per_iteration=2", "group_size=12", "micro_batch=24"]
            yield f"{name}, {steps} steps", {"words": words}


def worked(job: Job) -> dict[str, float]:
    """Run a job in a new process; its figures."""
    with tempfile.TemporaryDirectory() as folder:
        asked = json.dumps({**job, "folder": folder})
        done = subprocess.run(
            [sys.executable, __file__, "--job", asked],
            # return freed memory to the system, so that the peak counts only used memory
            env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(job: Job) -> dict[str, float]:
    """MiB that an iteration used, without gradient and moments."""
    from rlfactory.config.overrides import plan_from_words
    from rlfactory.train.build import build, training_budget
    from rlfactory.train.components import NoProgress
    from rlfactory.train.trainer import Trainer

    if "vocabulary" in job:
        make_policy(Path(job["folder"]), job["vocabulary"])
    words = [word.format(folder=job["folder"]) for word in job["words"]]
    config = plan_from_words(*words, "scoring.background=none", "iterations=1").config
    parts = build(config)
    trainer = Trainer(parts, training_budget(config), NoProgress())
    trained = sum(4 * p.numel() for p in parts.model.weights.parameters.values())
    reset_peak()
    before = resident("VmRSS")
    trainer.run(lambda *_: None)
    grown = resident("VmHWM") - before
    return {"peak": grown / MIB, "held": (grown - 3 * trained) / MIB, "trained": trained / MIB}


def make_policy(folder: Path, vocabulary: int) -> None:
    """A small GPT-2 with random weights, and a tokenizer of single characters."""
    from gpt2_folders import tokenizer
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(**SMALL, vocab_size=vocabulary, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer(vocabulary).save_pretrained(folder)


def reset_peak() -> None:
    """Reset the peak to the memory that is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def resident(name: str) -> int:
    """Bytes in a line of /proc/self/status, such as VmRSS."""
    lines = Path("/proc/self/status").read_text().splitlines()
    value = next(line for line in lines if line.startswith(f"{name}:")).split()[1]
    return 1024 * int(value)


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """The table; each row with its ratio to the first of its kind."""
    lines = ["| | peak, MiB | of the computation, MiB |", "|---|---:|---:|"]
    lines += [f"| {name} | {f['peak']:.0f} | {f['held']:.0f} |" for name, f in found.items()]
    return "\n".join(lines)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--only", choices=["tokens", "images"], help="one of the two kinds")
    made.add_argument("--algo", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    made.add_argument("--job", help=argparse.SUPPRESS)
    a, began = made.parse_args(), machine()
    if a.job:
        print(json.dumps(measure(json.loads(a.job))))
        return
    jobs = [] if a.only == "images" else [*token_jobs()]
    jobs += [] if a.only == "tokens" else [*image_jobs(a.algo)]
    found = {}
    for name, job in jobs:
        found[name] = worked(job)
        print(f"{name}: {found[name]['held']:.0f} MiB", file=sys.stderr, flush=True)
    print(table(found))
    keep(a, machine=began, figures=found)


if __name__ == "__main__":
    main()
