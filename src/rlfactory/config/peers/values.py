"""Values of other libraries' options in the words of this one's command.

Functions take the value as typed and the configuration that it was typed for, and return what to
type, most fitting first.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.named_models import is_hub_id, option_of
from rlfactory.config.options import options

Config = Mapping[str, Any]
Words = tuple[str, ...]

PRECISIONS = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "torch.bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "torch.float16": "fp16",
    "half": "fp16",
    "fp32": "fp32",
    "float32": "fp32",
    "torch.float32": "fp32",
}
"""Names of number formats, and the options of `precision`."""

REWARDS = {
    "jpeg_compressibility": "compressibility",
    "jpeg_incompressibility": "incompressibility",
    "aesthetic_score": "aesthetic",
    "pick_score": "pickscore",
    "clip": "clipscore",
    "clip_score": "clipscore",
    "hpsv2": "hps",
    "hps_v3": "hpsv3",
    "image_reward": "imagereward",
    "llava_bertscore": "llava_bertscore",
}
"""Rewards of other libraries by their names in lower case, where ours differ."""

PROMPTS = {
    "simple_animals": "animals",
    "nouns_activities": "activities",
    "general_ocr": "signs",
    "ocr": "signs",
    "pickscore": "pick_a_pic",
}
"""Prompt functions and data sets of other libraries, where our names differ."""

LANGUAGE_MODEL = "rlfactory.model.causal_lm.CausalLM"


def number(text: str) -> float | None:
    """A typed number; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def model(value: str, config: Config) -> list[Words]:
    """A model by hub id or folder: the option of its kind, and the path."""
    known = option_of(value)
    return [(f"model={known}", f"model.path={value}") if known else (f"model.path={value}",)]


def reward(value: str, config: Config) -> list[Words]:
    """A reward by name, or a function by `FILE.py:NAME` or `package.module:NAME`."""
    name = value.lower()
    if ":" in value:
        kinds = ["image_function", "function"]
        if config["model"]["_target_"] == LANGUAGE_MODEL:
            kinds.reverse()
        return [(f"reward={kind}", f"reward.function={value}") for kind in kinds]
    if is_hub_id(value):
        return [("model=tiny_gpt2", "reward=reward_model", f"reward.path={value}")]
    chosen = (f"reward={REWARDS.get(name, name)}",)
    return [chosen, ("model=tiny_gpt2", *chosen)]


def prompts(value: str, config: Config) -> list[Words]:
    """Prompts in a file, a folder or a data set of the hub, and a reward that needs no metadata."""
    name = value.lower().rstrip("/").rpartition("/")[2]
    if (known := PROMPTS.get(name, name)) in options("prompts") and known not in (
        "file",
        "datasets",
    ):
        return [(f"prompts={known}",), (f"prompts={known}", "reward=compressibility")]
    kind = "file" if value.endswith((".txt", ".jsonl")) else "datasets"
    words = (f"prompts={kind}", f"prompts.path={value}")
    return [words, (*words, "reward=compressibility"), (*words, "reward=length")]


def prompt_function(value: str, config: Config) -> list[Words]:
    """A prompt function of ddpo-pytorch by name."""
    name = value.lower()
    return [
        (f"prompts={PROMPTS.get(name, name)}", *more) for more in ((), ("reward=compressibility",))
    ]


def dynamics(value: str, config: Config) -> list[Words]:
    """A sampler by name, with an algorithm that learns from its steps."""
    name = value.lower().replace("-", "_")
    words = (f"dynamics={name}",)
    return [("algo=grpo", *words), ("model=tiny_sd", *words), words]


def iterations_of_steps(value: str, config: Config) -> list[Words]:
    """The iterations that make a number of optimizer steps."""
    steps = number(value) or 1
    return [(f"iterations={_ratio(steps, config['updates_per_iteration'] * config['epochs'])}",)]


def iterations_of_samples(value: str, config: Config) -> list[Words]:
    """The iterations that draw a number of samples."""
    samples = number(value) or 1
    return [
        (f"iterations={_ratio(samples, config['prompts_per_iteration'] * config['group_size'])}",)
    ]


def present_iterations(value: str, config: Config) -> list[Words]:
    """The iterations as they are: another library's measure that can't be converted."""
    return [(f"iterations={config['iterations']}",)]


def warmup_of_ratio(value: str, config: Config) -> list[Words]:
    """The iterations that are a share of the run."""
    return [(f"learning_rate.warmup={round((number(value) or 0) * config['iterations'])}",)]


def first_beta(value: str, config: Config) -> list[Words]:
    """Adam's betas with another first one."""
    return [(f"optimizer.betas=[{value},{_betas(config)[1]}]",)]


def second_beta(value: str, config: Config) -> list[Words]:
    """Adam's betas with another second one."""
    return [(f"optimizer.betas=[{_betas(config)[0]},{value}]",)]


def resume(value: str, config: Config) -> list[Words]:
    """Resuming a run folder."""
    folder = Path(value).expanduser()
    run = next((p for p in (folder, *folder.parents[:2]) if (p / "config.yaml").is_file()), None)
    return [(f"run_dir={run}",)] if run else [()]


def _betas(config: Config) -> list[float]:
    betas: list[float] = config["optimizer"].get("betas", [0.9, 0.999])
    return betas


def _ratio(count: float, of: int) -> int:
    return max(1, round(count / of))
