"""The stages of the GPU measurements: what each of them measures, row by row."""

import hashlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from full_size import bench, configured, estimate_text, flops, foreseen, peak_flops
from performance import run
from probe import median, seconds
from processes import make_models, measure
from sides import Side, ratio

from rlfactory.config.memory.devices import GIB
from rlfactory.config.memory.peak_memory import peak_of
from rlfactory.config.overrides import plan_from_words
from rlfactory.run.checkpoint.find import newest
from rlfactory.run.folder import RunFolder
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import NoProgress
from rlfactory.train.trainer import Trainer
from rlfactory.utils.fault_injection import VARIABLE

ROOT = Path(__file__).parents[2]
Result = dict[str, Any]
FAMILIES = ("sd35_medium", "flux_dev", "sd14")
ALGORITHMS = ("grpo", "nft", "awm", "vgrpo", "ddpo", "grpo_guard")
TINY = ("model=tiny_sd3 algo=nft", "model=tiny_flux algo=grpo", "model=tiny_sd algo=ddpo")
TEXT = "model=tiny_gpt2 algo=ppo"

_VAE = {"block_out_channels": [8] * 4, "norm_num_groups": 2, "layers_per_block": 1}
_ATTENTION = {"num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 16}
_SD3 = {"num_layers": 2, "caption_projection_dim": 16, "attention_head_dim": 8}
_FLUX = {"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16}
SMALL: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "sd35_medium": {
        "transformer": {**_SD3, **_ATTENTION, "dual_attention_layers": [0]},
        "vae": _VAE,
    },
    "flux_dev": {"transformer": {**_FLUX, **_ATTENTION, "axes_dims_rope": [4, 6, 6]}, "vae": _VAE},
    "sd14": {
        "unet": {
            "block_out_channels": [16] * 4,
            "norm_num_groups": 4,
            "layers_per_block": 1,
            "attention_head_dim": 2,
            "cross_attention_dim": 32,
        },
        "vae": _VAE,
    },
}
"""Changes that make each full-size network small, for `--pretend`."""


@dataclass(frozen=True)
class Setup:
    """Where to measure.

    Attributes:
        device: a CUDA device, or the CPU to run every line with small networks.
        trl_python: the Python of an environment with TRL.
        folder: where runs may be written.
    """

    device: torch.device
    trl_python: Path | None
    folder: Path

    @property
    def pretends(self) -> bool:
        """Whether no figure is meant."""
        return self.device.type == "cpu"

    @property
    def hardware(self) -> str:
        """The word for the command line."""
        return "hardware=cpu" if self.pretends else "hardware=gpu"


@dataclass(frozen=True)
class Row:
    """A measurement with a name."""

    name: str
    measure: Callable[[Setup], Result]


@dataclass(frozen=True)
class Stage:
    """Measurements that belong together, in one table."""

    name: str
    title: str
    about: str
    rows: Callable[[Setup], Sequence[Row]]


# -- full-size image models


def iteration(name: str, algorithm: str, words: Sequence[str], setup: Setup) -> Result:
    """The second iteration of a full-size model with random weights."""
    small = ["model.size=64", "schedule.steps=3", "evaluation.size=64"] if setup.pretends else []
    config = configured(name, algorithm, None, [setup.hardware, *words, *small])
    changes = SMALL[name] if setup.pretends else {}
    found = bench(name, config, setup.device, flops(name, changes), changes)
    best = None if setup.pretends else peak_flops(torch.cuda.get_device_name(setup.device))
    return {
        "peak GiB": found.peak / GIB,
        "estimated GiB": peak_of(foreseen(config)) / GIB - estimate_text(config),
        "images/s drawn": found.drawn,
        "samples/s learned": found.learned,
        "images/s in all": found.total,
        "MFU learning, %": 100 * found.flops / best if best else "",
        "first ratio off 1 by": found.first_ratio,
    }


def first_rows(setup: Setup) -> list[Row]:
    """Every family with every algorithm, as the command line's defaults have it."""
    del setup
    # grpo_guard's ratio is derived for flow matching, which SD1.4 is not
    pairs = [
        (name, algorithm)
        for algorithm in ALGORITHMS
        for name in FAMILIES
        if (name, algorithm) != ("sd14", "grpo_guard")
    ]
    return [Row(f"{n} {a}", partial(iteration, n, a, [])) for n, a in pairs]


def throughput_rows(setup: Setup) -> list[Row]:
    """SD3.5 Medium with Flow-GRPO at 384 x 384, as UniRL measures; then learning at 512 x 512."""
    samples = 2 if setup.pretends else 12
    flow_grpo = [
        *("model.size=384", "schedule.steps=10", "window.steps=[0,1,2]", "group_size=16"),
        *(f"prompts_per_iteration={samples}", "updates_per_iteration=2"),
    ]
    sizes = [("default batches", [])]
    sizes += [
        (f"{drawn} drawn, {learned} learned at once", batch_words(drawn, learned))
        for drawn, learned in ((16, 8), (32, 16), (64, 32), (96, 48))
    ]
    rows = [
        Row(f"384, {n}", partial(iteration, "sd35_medium", "grpo", [*flow_grpo, *w]))
        for n, w in sizes
    ]
    large = ["group_size=16", f"prompts_per_iteration={samples // 2}"]
    for learned in (4, 8, 16, 32):
        words = [*large, *batch_words(32, learned)]
        rows.append(Row(f"512, {learned} at once", partial(iteration, "sd35_medium", "nft", words)))
    return rows


def batch_words(drawn: int, learned: int) -> list[str]:
    """The batch sizes of sampling and learning."""
    return [f"sample_batch={drawn}", f"micro_batch={learned}"]


def compiled_rows(setup: Setup) -> list[Row]:
    """Learning with and without compiled blocks."""
    del setup
    batch = [*batch_words(32, 16), "group_size=16", "prompts_per_iteration=2"]
    settings = {"plain": [], "compiled blocks": ["memory.compile=true"]}
    return [
        Row(f"{name}, {text}", partial(iteration, name, "nft", [*batch, *words]))
        for name in ("sd35_medium", "flux_dev")
        for text, words in settings.items()
    ]


# -- tokens


def tokens(size: str, batch: int, critic: str, words: Sequence[str], setup: Setup) -> Result:
    """PPO, or GRPO without a critic, on a GPT-2 with random weights; beside TRL where its Python
    was given.
    """
    length = 8 if setup.pretends else 75
    job: Result = {
        **{"batch": batch, "prompt": 8, "response": length, "epochs": 4, "minibatches": 4},
        **{"threads": os.cpu_count() or 1, "iterations": 2 if setup.pretends else 4},
        **{"hardware": "cpu" if setup.pretends else "gpu", "critic": critic, "group": 8},
        "more": list(words),
    }
    with tempfile.TemporaryDirectory() as folder:
        job |= make_models(folder, size=size, prompts=batch, length=8, threads=job["threads"])
        if critic == "none":
            del job["reward"]
        sides = {"rlfactory": measure("ppo_rlfactory.py", job)}
        if setup.trl_python is not None:
            script = "grpo_trl.py" if critic == "none" else "ppo_trl.py"
            sides["TRL"] = measure(script, job, setup.trl_python)
    result: Result = {}
    for side, found in sides.items():
        _, spent = seconds(median(found["iterations"]))
        result |= {f"{side}, s": spent, f"{side} tokens/s": batch * length / spent}
    if "TRL, s" in result:
        result["times faster"] = result["TRL, s"] / result["rlfactory, s"]
    return result


def token_rows(setup: Setup) -> list[Row]:
    """GPT-2's own size: PPO in two precisions and two batch sizes, and GRPO."""
    size = "tiny_gpt2" if setup.pretends else "gpt2"
    batches = (8,) if setup.pretends else (32, 128)
    settings = {"float32": [], "bfloat16": ["precision=bf16"]}
    rows = [
        Row(f"{size}, {batch} texts, {name}", partial(tokens, size, batch, "separate", words))
        for batch in batches
        for name, words in settings.items()
    ]
    grpo = [Row(f"GRPO, {size}, {b} texts", partial(tokens, size, b, "none", [])) for b in batches]
    return [*rows, *grpo]


# -- the ratios of docs/performance.md


def ratios(command: str, small: str, setup: Setup) -> Result:
    """Wall seconds of a bench's two sides, and how many times as fast the second one is."""
    typed = f"{command} {small if setup.pretends else '--gpu'}"
    result: Result = {}
    for name, sides in run(typed, setup.folder)["comparisons"].items():
        what = name.rpartition(", ")[2]
        one, other = (Side(**side) for side in sides.values())
        for side, found in zip(sides, (one, other), strict=True):
            result[f"{what}, {side}, s"] = statistics.median(found.wall)
        result[f"{what}, times as fast"] = ratio(one, other, "wall")
    return result


def ratio_rows(setup: Setup) -> list[Row]:
    """Iterations beside their floors, rollouts beside `generate`, learning from whole rows."""
    del setup
    few = "--rounds 1 prompts_per_iteration=2 group_size=4"
    short = "--rounds 1 --prompt 16 --new 4"
    rows = {f"iteration.py --only {name}": few for name in ("nft", "grpo", "ddpo", "tokens")}
    gpt2 = "rollout.py --layers 12 --width 768 --vocabulary 50257"
    rows |= {gpt2: short, f"{gpt2} --end 0.04": short}
    for text in ("", " --dtype bfloat16", " --prompts 8 --dtype bfloat16"):
        rows[f"shared_prompts.py{text}"] = f"{short} --group 2"
    return [Row(command, partial(ratios, command, small)) for command, small in rows.items()]


# -- the same bits


def same_bits(words: Sequence[str], setup: Setup) -> Result:
    """Whether two runs, and one that was killed and resumed, end with the same weights."""
    small = ["iterations=3", "evaluation.prompts=4", "checkpoint.every=1", "evaluation.grid=2"]
    few = ["prompts_per_iteration=2", "group_size=4"] if setup.pretends else []
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / name for name in ("one", "two", "killed")]
        typed = [setup.hardware, *small, *few, *words]
        for run in runs[:2]:
            command([*typed, f"run_dir={run}"])
        command([*typed, f"run_dir={runs[2]}"], fault="after_iteration:kill:2", code=-9)
        command(["resume", str(runs[2])])
        one, two, resumed = map(digest, runs)
    return {"two runs equal": one == two, "resumed equal": one == resumed}


def command(words: Sequence[str], fault: str = "", code: int = 0) -> None:
    """Run `rlfactory` with these words; RuntimeError unless it ends with this exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "rlfactory.cli", *words],
        env=os.environ | ({VARIABLE: fault} if fault else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != code:
        last = " ".join(done.stderr.strip().splitlines()[-2:])
        raise RuntimeError(f"exit code {done.returncode}: {last}")


def digest(run: Path) -> str:
    """The hash of a run's last weights."""
    checkpoint = newest(RunFolder(run).checkpoints)
    assert checkpoint is not None
    return hashlib.sha256((checkpoint / "weights.safetensors").read_bytes()).hexdigest()


def bits_rows(setup: Setup) -> list[Row]:
    """Images and tokens, with deterministic kernels and with the default ones."""
    del setup
    settings = {"default": [], "deterministic": ["hardware.deterministic=true"]}
    return [
        Row(f"{text}, {name}", partial(same_bits, [*text.split(), *words]))
        for text in (TINY[0], TINY[2], TEXT)
        for name, words in settings.items()
    ]


# -- waits


def waits(text: str, setup: Setup) -> Result:
    """Lines at which the host waited for the device in the second iteration, by torch's count."""
    few = ["prompts_per_iteration=2", "group_size=4"] if setup.pretends else []
    words = [setup.hardware, "scoring.background=none", "iterations=2", *few, *text.split()]
    config = plan_from_words(*words).config
    parts = build(config)

    def watch(iteration: int, *_: Any) -> None:
        if not iteration and not setup.pretends:
            torch.cuda.set_sync_debug_mode("warn")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            Trainer(parts, training_budget(config), NoProgress()).run(watch)
        finally:
            if not setup.pretends:
                torch.cuda.set_sync_debug_mode("default")
    counted = Counter(
        f"{Path(w.filename).name}:{w.lineno}" for w in caught if "synchroniz" in str(w.message)
    )
    most = ", ".join(f"{place} {count}" for place, count in counted.most_common(6))
    return {"waits": counted.total(), "lines with most": most}


def wait_rows(setup: Setup) -> list[Row]:
    """An iteration of each family."""
    del setup
    return [Row(text, partial(waits, text)) for text in (*TINY, TEXT)]


# -- tests


STANDARDS = ("-m", "standards", "--whole", "--write-standards", "new", "-n", "0")
"""Stored the first time on a kind of device, compared afterwards."""


def run_tests(words: Sequence[str], setup: Setup) -> Result:
    """The last line that pytest prints."""
    limit = ["--collect-only"] if setup.pretends else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *limit, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    last = next(iter(done.stdout.strip().splitlines()[-1:]), "")
    return {"exit code": done.returncode, "pytest": re.sub(r"=+", "", last).strip()}


def test_rows(setup: Setup) -> list[Row]:
    """The tests that need a GPU, and the bits of every algorithm and experiment."""
    del setup
    standards = (*STANDARDS, "tests/train/test_standards.py")
    return [
        Row(name, partial(run_tests, words))
        for name, words in {"tests/gpu": ("tests/gpu",), "standards": standards}.items()
    ]


STAGES = (
    Stage(
        "first",
        "Every family with every algorithm",
        "One iteration of eight images at full size, LoRA, bf16, each option's default batches: "
        "peak memory beside the plan's estimate (without text encoders), speed, utilisation, "
        "and how far the first importance ratio was from 1.",
        first_rows,
    ),
    Stage(
        "throughput",
        "Throughput of SD3.5 Medium",
        "Flow-GRPO at 384 × 384, 10 steps of which 3 are stochastic, in the shape that UniRL "
        "publishes (1.495 images/s on an H20); DiffusionNFT at 512 × 512 by micro-batch.",
        throughput_rows,
    ),
    Stage(
        "tokens",
        "PPO and GRPO on GPT-2",
        "124 M parameters, random weights, 75 new tokens after 8, 4 passes × 4 minibatches; "
        "medians after the first iteration.",
        token_rows,
    ),
    Stage(
        "ratios",
        "The ratios of [performance](performance.md)",
        "Both sides in turns, by the wall.",
        ratio_rows,
    ),
    Stage(
        "bits",
        "Equal bits",
        "Three iterations twice, and once more killed after the second and resumed: the sha256 "
        "of the final weights.",
        bits_rows,
    ),
    Stage(
        "waits",
        "Waits of the host for the device",
        "Of the second iteration, counted by `torch.cuda.set_sync_debug_mode`.",
        wait_rows,
    ),
    Stage(
        "compiled",
        "Compiled blocks",
        "The second iteration with `memory.compile` and without.",
        compiled_rows,
    ),
    Stage(
        "tests",
        "Tests that need a GPU",
        "`pytest tests/gpu` and `pytest -m standards --whole`.",
        test_rows,
    ),
)
"""All stages, the most valuable first."""
