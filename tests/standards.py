"""Standards: the weights and metrics that each algorithm and each experiment gives a small model.

A line of data/golden/standards.jsonl is a case on a kind of machine, since another processor or
version of torch adds in another order. An algorithm learns for two iterations in two layouts of
its batches; an experiment for two in one, with its own family of networks, made small, and another
reward and prompts. A change that moves bits stores them anew, and its commit says why:

pytest -m standards --whole --write-standards moved -n 0
"""

import json
import platform
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import yaml

import rlfactory as rl
from rlfactory.config.options import options
from rlfactory.config.overrides import compose
from rlfactory.report import results
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import read
from rlfactory.tools.bit_differences import CLOCKS
from rlfactory.train.components import Components
from rlfactory.train.listeners import Listener, Summary

PAIRS = Path(__file__).parent / "data"
FILE = PAIRS / "golden" / "standards.jsonl"
LAYOUTS = {
    "whole": ("micro_batch=8", "sample_batch=8"),
    "split": ("micro_batch=2", "sample_batch=4"),
}
"""Micro-batches that hold an update's items, and ones that are accumulated."""
COMMON = (
    *("iterations=2", "prompts_per_iteration=2", "group_size=4", "updates_per_iteration=2"),
    *("checkpoint.background=false", "checkpoint.minutes=0", "scoring.background=none"),
    *("evaluation.prompts=1", "evaluation.preview_every=0"),
)
IMAGES = (
    *("model=tiny_sd3", "model.size=32", "reward=compressibility", "schedule.steps=4"),
    "evaluation.steps=1",
)
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
SHIPPED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("sd14", "sd15"), ("model.path=zoo:tiny_sd",)),
    "sd35": ("model.path=zoo:tiny_sd3", "model.text_tokens=16"),
}
"""The small model that ships of an experiment's family; tiny_pipelines.py has the others."""
SMALL = (
    *("precision=fp32", "latent_storage=float32", "seed=0", "max_minutes=null"),
    *("reward=compressibility", "prompts=shapes", "schedule.steps=10"),
    *("evaluation.steps=1", "evaluation.size=null"),
)
"""What every experiment with images is given besides."""
_FILE = ("prompts=file", f"prompts.path={PAIRS / 'pairs.jsonl'}")
_ONE_REWARD = "advantage.weights=null"
OF_EXPERIMENTS: Mapping[str, tuple[str, ...]] = {
    # their rates fall to 0 at the end: of two iterations the first alone would move weights
    **dict.fromkeys(("openai_cnndm", "openai_tldr"), (*_FILE, "iterations=3")),
    # their own placement is for the value model of a reward model
    "four_models": (*_FILE, "algo.score_placement=last"),
    "trl_tldr": (*_FILE, "algo.score_placement=last", "model.value_path=null"),
    # groups that their branches divide
    "peer/dance": ("group_size=12", "prompts_per_iteration=1"),
    "peer/mix": ("group_size=12", "prompts_per_iteration=1", _ONE_REWARD),
    "peer/mix_flash": ("group_size=12", "prompts_per_iteration=1", _ONE_REWARD),
    "peer/branch": ("group_size=16", "prompts_per_iteration=1"),
    "peer/dance_sd": ("group_size=16", "prompts_per_iteration=1"),
    "peer/unirl_grpo_flux2_klein": ("group_size=16", "prompts_per_iteration=1"),
    "peer/tempflow": ("branches=2", "group_size=18", "prompts_per_iteration=1"),
}
"""What an experiment needs beside that."""

REPLACED = {"reward", "prompts", "precision", "evaluation"}
"""Groups whose options and keys every run of an experiment is given anew."""

Standard = dict[str, Any]
Key = tuple[str, str]
"""A case's name and layout."""


class _Kept(Listener):
    """Keeps the trained parameters as they are at the start and at the end."""

    def before_training(self, components: Components, done: int) -> None:
        self._parameters = components.model.weights.parameters
        self.first = {name: p.detach().clone() for name, p in self._parameters.items()}

    def after_training(self, summary: Summary) -> None:
        self.weights = {name: p.detach().clone() for name, p in self._parameters.items()}


def machine() -> str:
    """What the bits of a sum depend on."""
    version = f"torch {torch.__version__.partition('+')[0]}"
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {version}"
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    # the libraries choose their kernels by the processor's model, not by its instructions alone
    named = re.findall(r"^(?:vendor_id|cpu family|model)\s*: (\S+)", text, re.MULTILINE)[:3]
    maker = " ".join(named) or platform.machine()
    return f"{maker} {torch.backends.cpu.get_cpu_capability()}, {version}"


def words_of(algorithm: str, layout: str) -> list[str]:
    """The words of an algorithm's run."""
    own = (*OWN.get(algorithm, ()), *LAYOUTS[layout], _device())
    # the model's kind is the only one of which the algorithm is an option
    is_of_texts = "override /dynamics: token" in options("algo")[algorithm].read_text()
    return [f"algo={algorithm}", *_merged(COMMON, TEXTS if is_of_texts else IMAGES, own)]


def words_of_experiment(name: str, small: Callable[[str], list[str]]) -> list[str]:
    """The words of an experiment's run; `small` gives those of its family's small pipeline."""
    chosen = compose([f"experiment={name}"], verify=False)
    model, is_of_texts = chosen.choices["model"], chosen.choices["dynamics"] == "token"
    kind, own = SMALL, [*OF_EXPERIMENTS.get(name, ()), *LAYOUTS["whole"], _device()]
    if is_of_texts:
        kind = TEXTS[1:]
        own += ["model.path=zoo:tiny_gpt2"] if model == "gpt2" else []
    else:
        shipped = SHIPPED.get(model)
        own += [*shipped, "model.size=32"] if shipped else small(model)
    return [f"experiment={name}", *_merged(COMMON, kind, own)]


def covering() -> set[str]:
    """Experiments that together choose every option and set every key that any does.

    The values of the others are tested in their plans, which are stored too (data/golden).
    """
    told = {name: _told(path) for name, path in options("experiment").items()}
    left, found = frozenset[str]().union(*told.values()), set[str]()
    while left:
        best = max(told, key=lambda name: len(told[name] & left))
        found.add(best)
        left -= told[best]
    return found


def _told(path: Path) -> frozenset[str]:
    """An experiment's choices, as `group=option`, and the keys that it sets."""
    node = yaml.load(path.read_text(), yaml.CSafeLoader)
    chosen = [
        pair for each in node.pop("defaults", []) if isinstance(each, dict) for pair in each.items()
    ]
    words = [f"{group.rpartition('/')[2]}={option}" for group, option in chosen]
    for group, value in node.items():
        words += [f"{group}.{key}" for key in value] if isinstance(value, dict) else [group]
    return frozenset(word for word in words if re.split(r"[=.]", word)[0] not in REPLACED)


def _device() -> str:
    return f"hardware={'gpu' if torch.cuda.is_available() else 'cpu'}"


def _merged(*parts: Sequence[str]) -> list[str]:
    """The words of all parts; of two with one key, the later one."""
    return [*{word.partition("=")[0]: word for part in parts for word in part}.values()]


def trained(words: Sequence[str], *, pause: int | None = None) -> Standard:
    """Hashes of the weights that a run ends with and of its metrics, and how far weights moved.

    Args:
        words: of the run.
        pause: the iterations after which it is left, and resumed as a run of its own.
    """
    threads, draw = torch.get_num_threads(), results.draw_run
    torch.set_num_threads(1)
    results.draw_run = lambda folder, *_: folder.page
    try:
        with tempfile.TemporaryDirectory() as place:
            folder, kept = RunFolder(Path(place) / "run"), _Kept()
            own = [*words, f"run_dir={folder.path}"]
            if pause is not None:
                rl.train(*own, until=pause)
            rl.train(*own, listeners=[kept])
            return {"metrics": _hash_of_metrics(folder), **summary(kept.first, kept.weights)}
    finally:
        torch.set_num_threads(threads)
        results.draw_run = draw


def _hash_of_metrics(folder: RunFolder) -> str:
    lines = [
        {name: value for name, value in record.items() if not name.startswith(CLOCKS)}
        for record in read(folder.metrics)
    ]
    return sha256(json.dumps(lines, sort_keys=True).encode()).hexdigest()


def summary(first: Mapping[str, torch.Tensor], last: Mapping[str, torch.Tensor]) -> Standard:
    """A hash of names and bits, the norm, and the norm of the change."""
    found = sha256()
    for name, value in sorted(last.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    before, after = (torch.cat([w.double().flatten() for w in s.values()]) for s in (first, last))
    norm, moved = after.norm().item(), (after - before).norm().item()
    return {"sha256": found.hexdigest(), "norm": norm, "moved": moved}


def stored() -> dict[str, dict[Key, Standard]]:
    """The standards of each kind of machine, by case."""
    found: dict[str, dict[Key, Standard]] = {}
    for line in FILE.read_text().splitlines():
        row = json.loads(line)
        key = row.pop("case"), row.pop("layout")
        found.setdefault(row.pop("machine"), {})[key] = row
    return found


def store(kind: str, key: Key, standard: Standard) -> None:
    """Write a case of a kind of machine into the file."""
    standards = stored()
    standards.setdefault(kind, {})[key] = standard
    rows = [
        {"machine": kind, "case": name, "layout": layout, **found}
        for kind, cases in standards.items()
        for (name, layout), found in sorted(cases.items())
    ]
    FILE.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
