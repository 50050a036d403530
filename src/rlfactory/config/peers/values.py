"""Values of other libraries' options in the words of this one's command.

Functions take the value as typed and the configuration that it was typed for, and return what to
type, most fitting first.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.named_models import is_hub_id, option_of
from rlfactory.config.options import options
from rlfactory.config.peers.names import Name, Words, option_words, our_option
from rlfactory.config.problems import override_key

Config = Mapping[str, Any]


def candidates(row: Name, value: str, config: Config) -> list[Words]:
    """The words for a value of a name, most fitting first; nothing for one that has no like."""
    chosen = row.choices.get(value.lower())
    found: str | list[Words] = value
    if row.by and chosen is None:
        found = CONVERSIONS[row.by](value, config)
    if not isinstance(found, str):
        return list(found)
    if chosen is None and row.choices and not row.words:
        return []
    made = []
    for alternative in (row.words if chosen is None else chosen).split(" | "):
        words = tuple(word.replace("{value}", found) for word in alternative.split())
        own = {override_key(word) for word in words}
        bases = [[w for w in base.split() if override_key(w) not in own] for base in row.bases]
        made += [tuple([*base, *words]) for base in ([], *bases)]
    return made


def number(text: str) -> float | None:
    """A typed number; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def is_place(value: str) -> bool:
    """Whether a model's name is a hub id or a path."""
    return is_hub_id(value) or value.startswith(("/", "~", "./", "../"))


def model(value: str, config: Config) -> list[Words]:
    """A model by hub id or folder: the option of its kind, and the path; or that of a typed one."""
    path, known = f"model.path={value}", option_of(value)
    return [(f"model={known}", path), (path,)] if known else [(path,)]


def reward(value: str, config: Config) -> list[Words]:
    """A reward by name, a function by `FILE.py:NAME` or `MODULE:NAME`, or a list of them."""
    if ":" in value or value.startswith("["):
        return [(f"reward={value}",), ("model=tiny_gpt2", f"reward={value}")]
    if is_place(value):
        return [("model=tiny_gpt2", "reward=reward_model", f"reward.path={value}")]
    chosen = option_words("reward", value)
    return [chosen, ("model=tiny_gpt2", *chosen)]


def prompts(value: str, config: Config) -> list[Words]:
    """Prompts in a file, a folder or a data set of the hub, and a reward that needs no metadata."""
    name = value.lower().rstrip("/").rpartition("/")[2]
    is_known = (known := our_option("prompts", name)) in options("prompts")
    if is_known and known not in ("file", "datasets") and not Path(value).exists():
        return [(f"prompts={known}",), (f"prompts={known}", "reward=compressibility")]
    kind = "file" if value.endswith((".txt", ".jsonl")) else "datasets"
    words = (f"prompts={kind}", f"prompts.path={value}")
    return [words, (*words, "reward=compressibility"), (*words, "reward=length")]


def dynamics(value: str, config: Config) -> list[Words]:
    """A sampler by name, with an algorithm that learns from its steps."""
    words = option_words("dynamics", value)
    return [("algo=grpo", *words), ("model=tiny_sd", *words), words]


def guidance(value: str, config: Config) -> list[Words]:
    """Guidance of a pipeline: an input of FLUX's network, else by a second evaluation.

    Z-Image's scale is ours less 1.
    """
    model = config.get("model", {})
    target, scale = str(model.get("_target_")), number(value)
    if "embedded_guidance" in model:
        # a model without this input was distilled to sample without guidance
        return [(f"model.embedded_guidance={value}",)] if model["embedded_guidance"] else [()]
    if target.endswith(".ZImage") and scale is not None:
        value = f"{scale + 1:g}"
    words = (f"model.guidance={value}",)
    return [words, ("model=tiny_sd", *words)]


def clip_pair(value: str, config: Config) -> list[Words]:
    """A clip below 1 and one above."""
    low, _, high = value.strip("[]").partition(",")
    words = (f"algo.clip_range={low.strip()}", f"algo.clip_high={(high or low).strip()}")
    return [words, ("model=tiny_gpt2", *words)]


def loggers(value: str, config: Config) -> list[Words]:
    """Loggers by name, without those that there are anyway."""
    names = [our_option("logger", name.strip(" '\"")) for name in value.strip("[]").split(",")]
    kept = [name for name in names if name != "jsonl"] or ["jsonl"]
    if not {*kept} <= {*options("logger")}:
        return []
    several = ("logger=several", f"logger.of=[{','.join(kept)}]")
    return [several if len(kept) > 1 else (f"logger={kept[0]}",)]


def _updates(value: str, count: int) -> str:
    """The updates of an iteration of `count` prompts or samples, for a number of them in each."""
    return f"{max(1, round(count / (number(value) or count)))}"


def share_of_run(value: str, config: Config) -> str | list[Words]:
    """The iterations that are a share of the run; nothing where its length is not known."""
    if "iterations" not in config:
        return []
    return f"{round((number(value) or 0) * config['iterations'])}"


def share_of_length(value: str, config: Config) -> str:
    """A number of tokens as a share of the longest response."""
    length = config["dynamics"].get("length", 0)
    return f"{min(1.0, (number(value) or 0) / length):g}" if length else value


def resume(value: str, config: Config) -> list[Words]:
    """Resuming a run folder."""
    folder = Path(value).expanduser()
    run = next((p for p in (folder, *folder.parents[:2]) if (p / "config.yaml").is_file()), None)
    return [(f"run_dir={run}",)] if run else [()]


def range_of_steps(value: str, _: Config) -> list[Words]:
    """The range of a list of steps, with a window that draws from it."""
    steps = [number(step) for step in value.strip("[]").split(",")]
    known = [int(step) for step in steps if step is not None]
    if not known:
        return []
    words = (f"window.low={min(known)}", f"window.high={max(known) + 1}")
    drawn = ("window=random_subset", *words)
    return [words, ("algo=grpo", *drawn), drawn]


def edges(value: str, _: Config) -> str:
    """One number for a square."""
    parts = {*value.strip("[]").split(",")}
    return parts.pop() if len(parts) == 1 else value


def _per(value: str, of: int) -> str:
    """A typed count in units of `of`, at least one; none and negative numbers as 0."""
    count = number(value)
    return value if count is None else f"{max(1, round(count / of)) if count > 0 else 0}"


Conversion = Callable[[str, Config], str | list[Words]]
_NAMED: tuple[Conversion, ...] = (
    *(model, reward, prompts, dynamics, guidance, clip_pair, loggers, resume),
    *(share_of_run, share_of_length, range_of_steps, edges),
)
CONVERSIONS: Mapping[str, Conversion] = {
    **{function.__name__: function for function in _NAMED},
    # PEFT's word for all layers is none of their names
    "listed": lambda v, _: v if v.startswith("[") or v == "all-linear" else f"[{v}]",
    "sole": lambda v, _: v.strip("[]") if v.startswith("[") and "," not in v else v,
    "decimal": lambda v, _: f"{float(v)}",
    "bound": lambda v, _: f"{max(abs(float(part)) for part in v.strip('[]').split(','))}",
    "updates_of_prompts": lambda v, config: _updates(v, config["prompts_per_iteration"]),
    "updates_of_samples": lambda v, config: _updates(
        v, config["prompts_per_iteration"] * config.get("group_size", 1)
    ),
    "in_iterations": lambda v, config: _per(v, config["updates_per_iteration"] * config["epochs"]),
    "iterations_of_samples": lambda v, config: _per(
        v, config["prompts_per_iteration"] * config["group_size"]
    ),
    "groups_of_samples": lambda v, config: _per(v, config["group_size"]),
    # a measure that can't be converted
    "present_iterations": lambda _, config: str(config.get("iterations", "")) or [],
}
"""Conversions of a value, by the names that rows have under `by`."""
