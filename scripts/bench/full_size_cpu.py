"""Models of published size on a CPU, from a folder to an opened export: `full_size.py --cpu`.

A model is saved as its makers save it: float16, in shards, with its text encoders. Weights are
random and the tokenizers those of small models, but SmolLM2's. The commands of a user follow, each
in a process of its own: two iterations, killed after the first; `resume`; `export`; the export is
opened without rlfactory and used. `peak` is the largest resident memory of a command that trains,
`expected` that of its plan.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from published import materialised, named, part
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from rlfactory.config.memory.devices import GIB
from rlfactory.config.memory.model_parts import published
from rlfactory.config.memory.peak_memory import estimate, peak_of, traits_of
from rlfactory.config.overrides import plan_from_words
from rlfactory.model.pipelines.shipped import zoo_path

SHARD = "2GB"
FEW = ["iterations=2", "prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1"]
FEW += ["hardware=cpu", "checkpoint.every=1", "evaluation.every=0", "recipe=none"]
IMAGES = ["reward=compressibility", "prompts=shapes", "schedule.steps=4", "evaluation.steps=4"]
IMAGES += ["evaluation.prompts=2"]
TEXTS = ["dynamics.length=32", "reward=length", "evaluation.prompts=2"]
OPEN_IMAGES = """
import torch
from diffusers import DiffusionPipeline
pipe = DiffusionPipeline.from_pretrained({base!r}, torch_dtype=torch.bfloat16)
pipe.load_lora_weights({export!r})
image = pipe("a red circle", height={size}, width={size}, num_inference_steps=2).images[0]
assert image.size == ({size}, {size})
"""
OPEN_TEXTS = """
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
base = AutoModelForCausalLM.from_pretrained({base!r}, dtype=torch.bfloat16)
model = PeftModel.from_pretrained(base, {export!r})
tokens = AutoTokenizer.from_pretrained({export!r})("The film", return_tensors="pt")
assert model.generate(**tokens, max_new_tokens=4).shape[1] > tokens.input_ids.shape[1]
"""


def save_images(name: str, zoo: str, folder: Path) -> None:
    """The pipeline of a family, whole."""
    described, cpu = published()[name], torch.device("cpu")
    networks: dict[str, Any] = {}
    for key, shape in described["parts"].items():
        networks[key] = materialised(part(shape), cpu, torch.float16)
        if hasattr(networks[key], "tie_weights"):
            networks[key].tie_weights()
    kind = named(described["pipeline"])
    scheduler = named(described["scheduler"]["class"])(**described["scheduler"]["config"])
    small = kind.from_pretrained(zoo_path(zoo))
    others = {k: v for k, v in small.components.items() if k.startswith("tokenizer")}
    for tokenizer in others.values():
        tokenizer.model_max_length = 77
    left = {k: None for k in small.components if k not in {*networks, *others, "scheduler"}}
    pipe = kind(**networks, **others, **left, scheduler=scheduler)
    pipe.save_pretrained(folder, max_shard_size=SHARD)


def save_texts(model: Any, zoo: str, folder: Path) -> None:
    """A causal LM with the tokenizer of a model that ships."""
    model.half().save_pretrained(folder, max_shard_size="100MB")
    AutoTokenizer.from_pretrained(zoo_path(zoo)).save_pretrained(folder)


def save_qwen3(folder: Path) -> None:
    """A causal LM with the shapes of Qwen3-0.6B."""
    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    )
    save_texts(Qwen3ForCausalLM(config), "tiny_gpt2", folder)


def save_smollm2(folder: Path) -> None:
    """SmolLM2-135M-Instruct, whose weights are real."""
    save_texts(AutoModelForCausalLM.from_pretrained(zoo_path("smollm2")), "smollm2", folder)


@dataclass(frozen=True)
class Case:
    """A model, what saves it in a folder, the words of its run, and the side of its images."""

    model: str
    save: Callable[[Path], None]
    words: Sequence[str]
    size: int = 0


CASES = {
    "sd14": Case(
        "sd14",
        partial(save_images, "sd14", "tiny_sd"),
        ["algo=ddpo", "precision=fp32", *IMAGES],
        128,
    ),
    "sd35_medium": Case(
        "sd35",
        partial(save_images, "sd35_medium", "tiny_sd3"),
        ["algo=nft", "precision=bf16", "model.text_tokens=77", *IMAGES],
        128,
    ),
    "qwen3_0.6b": Case("qwen3", save_qwen3, ["algo=grpo_token", *TEXTS]),
    "smollm2": Case("smollm2", save_smollm2, ["algo=grpo_token", *TEXTS]),
}


@dataclass(frozen=True)
class Ended:
    """A command: its seconds, and the peak of its memory in bytes."""

    seconds: float
    peak: int


def command(words: Sequence[str], log: Path, killed_at: Path | None = None) -> Ended:
    """Run a command of Python; kill it once `killed_at` is there, or raise where it fails."""
    begun = time.perf_counter()
    with log.open("a") as told:
        child = subprocess.Popen([sys.executable, *words], stdout=told, stderr=told)
        while killed_at is not None and not killed_at.exists() and child.poll() is None:
            time.sleep(0.2)
        if killed_at is not None:
            child.kill()
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != (0 if killed_at is None else -9):
        raise SystemExit(f"{' '.join(words)}: exit code {child.returncode}\n{log.read_text()}")
    return Ended(time.perf_counter() - begun, usage.ru_maxrss * 1024)


def whole(name: str, case: Case, folder: Path, more: Sequence[str]) -> list[str]:
    """A row of the table: what a model's commands took."""
    base, run, export, log = (folder / key for key in ("base", "run", "export", "log"))
    case.save(base)
    files = [*base.rglob("*.safetensors")]
    own = [f"model.size={case.size}"] if case.size else []
    words = [f"model={case.model}", f"model.path={base}", *FEW, *own, *case.words, *more]
    config = plan_from_words(*words).config
    found = estimate(config, traits_of(config))
    assert found is not None
    cli = ["-m", "rlfactory.cli"]
    begun = command([*cli, *words, f"run_dir={run}"], log, run / "checkpoints" / "step_000001")
    resumed = command([*cli, "resume", str(run)], log)
    exported = command([*cli, "export", str(run), "--to", str(export)], log)
    code = OPEN_IMAGES if case.size else OPEN_TEXTS
    code = code.format(base=str(base), export=str(export), size=case.size)
    opened = command(["-c", code], log)
    weights = sum(file.stat().st_size for file in files)
    peaks = [f"{max(begun.peak, resumed.peak) / GIB:.1f}", f"{peak_of(found) / GIB:.1f}"]
    seconds = [f"{ended.seconds:.0f}" for ended in (begun, resumed, exported, opened)]
    return [name, f"{weights / GIB:.1f}", str(len(files)), *peaks, *seconds]


def rows(names: Sequence[str], more: Sequence[str]) -> Iterator[list[str]]:
    """Every model in turn, each in a folder that is removed."""
    head = ["model", "weights, GiB", "files", "peak, GiB", "expected"]
    yield [*head, "killed, s", "resume, s", "export, s", "opened, s"]
    for name in names:
        with TemporaryDirectory() as folder:
            yield whole(name, CASES[name], Path(folder), more)
