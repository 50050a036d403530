"""Parse the words after `rlfactory sweep`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlfactory.config._hydra import CompositionError, parse
from rlfactory.config.problems import PlanError, Problem, override_key, unknown_name
from rlfactory.sweep.sweep_file import Words

PLAN = "--plan"
LAUNCHERS = {
    "pool": "",
    "basic": "",
    "joblib": "hydra-joblib-launcher",
    "submitit_local": "hydra-submitit-launcher",
    "submitit_slurm": "hydra-submitit-launcher",
    "ray": "hydra-ray-launcher",
}
SWEEPERS = ("basic", "random", "optuna")


@dataclass(frozen=True)
class SweepArguments:
    """The parsed words.

    Attributes:
        typed: overrides of every job.
        jobs: how many run at once; None: one for each GPU, or one.
        gpus: names for CUDA_VISIBLE_DEVICES; None: all visible ones.
        rows: slugs, or patterns of them, of the rows to run; empty: all.
        launcher_words: `hydra.launcher.KEY=VALUE` words.
        sweeper: None: `random` where the file or the words have a search.
        search: spaces as typed, by key.
        axes: overrides with several values, by key.
    """

    name: str
    typed: Words
    size: str = "full"
    seeds: list[int] | None = None
    jobs: int | None = None
    gpus: list[str] | None = None
    rows: list[str] = field(default_factory=list)
    folder: Path | None = None
    launcher: str = "pool"
    launcher_words: Words = field(default_factory=list)
    sweeper: str | None = None
    trials: int = 10
    search: dict[str, str] = field(default_factory=dict)
    axes: dict[str, list[str]] = field(default_factory=dict)
    only_plan: bool = False


def is_installed(package: str) -> bool:
    """Whether a plug-in of Hydra is installed."""
    module = f"hydra_plugins.{package.replace('-', '_')}"
    return find_spec("hydra_plugins") is not None and find_spec(module) is not None


def read_request(words: Sequence[str]) -> SweepArguments:
    """Parse words; PlanError with a problem for each that is wrong."""
    problems: list[Problem] = []
    name, rest = words[0], [word for word in words[1:] if word != PLAN]
    own = dict(word.split("=", 1) for word in rest if "=" in word and override_key(word) in _OWN)
    others = [word for word in rest if override_key(word) not in _OWN]
    values = {key: _OWN[key][1](key, text, problems) for key, text in own.items()}
    launcher_words = [w for w in others if w.startswith("hydra.launcher.")]
    search = [w for w in others if w.startswith("search.")]
    typed, axes = _overrides([w for w in others if w not in launcher_words + search], problems)
    if problems:
        raise PlanError(problems)
    return SweepArguments(
        name=name,
        typed=typed,
        axes=axes,
        launcher_words=launcher_words,
        search=dict(word.removeprefix("search.").split("=", 1) for word in search),
        only_plan=PLAN in words,
        **{_OWN[key][0]: value for key, value in values.items()},
    )


def _number(key: str, text: str, problems: list[Problem]) -> int | None:
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    problems.append(Problem(key, f"is {text or 'empty'}; allowed are 1 or more", f"{key}=1"))
    return None


def _option(key: str, text: str, problems: list[Problem]) -> str:
    known = [*LAUNCHERS] if key == "hydra/launcher" else [*SWEEPERS]
    if text not in known:
        problems.append(unknown_name(key, key.partition("/")[2], text, known))
    return text


def _seeds(key: str, text: str, problems: list[Problem]) -> list[int]:
    seeds: list[int] = []
    with suppress(*CompositionError, ValueError):
        seeds = [*map(int, _values(f"seed={text.strip('[]') or 'null'}"))]
    if not seeds or min(seeds) < 0 or len({*seeds}) < len(seeds):
        shown = f"is {text or 'empty'}; allowed are different whole numbers from 0 on"
        problems.append(Problem(key, shown, "seed=0,1,2"))
    return seeds


def _values(word: str) -> list[str]:
    """The values of an override, each as it is typed; one unless it is a sweep `KEY=a,b`."""
    override = parse([word])[0]
    if not override.is_sweep_override():
        return [word.partition("=")[2]]
    return [str(value) for value in override.sweep_string_iterator()]


def _overrides(words: Words, problems: list[Problem]) -> tuple[Words, dict[str, list[str]]]:
    """Separate overrides with one value from those with several, which are axes."""
    typed, axes = [], {}
    for word in words:
        if "=" not in word and not word.startswith("~"):
            instead = (PLAN,) if word.startswith("-") else None
            message = f"is neither {PLAN} nor KEY=VALUE"
            problems.append(Problem(word, message, instead=instead))
            continue
        several: list[str] = []
        with suppress(*CompositionError):  # the check of all jobs reports what is wrong
            several = _values(word)
        if len(several) > 1:
            axes[override_key(word)] = several
        elif override_key(word) in ("run_dir", "begin_from"):
            message = "differs for each run; set the folder of all runs by sweep_dir=FOLDER"
            problems.append(Problem(override_key(word), message))
        else:
            typed.append(word)
    return typed, axes


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.strip("[]").split(",") if part.strip()]


_OWN: Mapping[str, tuple[str, Callable[[str, str, list[Problem]], Any]]] = {
    "size": ("size", lambda key, text, problems: text),
    "seed": ("seeds", _seeds),
    "jobs": ("jobs", _number),
    "gpus": ("gpus", lambda key, text, problems: None if text == "auto" else _listed(text)),
    "rows": ("rows", lambda key, text, problems: _listed(text)),
    "sweep_dir": ("folder", lambda key, text, problems: Path(text).expanduser()),
    "hydra/launcher": ("launcher", _option),
    "hydra/sweeper": ("sweeper", _option),
    "trials": ("trials", _number),
}
"""A sweep's own keys: the field of each, and how its value is read; it adds problems."""
