"""What was typed after `rlfactory sweep`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlfactory._hydra import CompositionError, parse
from rlfactory.problems import PlanError, Problem, closest, key_of
from rlfactory.sweep.source import Words

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
class Request:
    """A sweep that was asked for. `jobs` and `gpus` are None where we choose."""

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


def read_request(words: Sequence[str]) -> Request:
    """The words in their meaning; a PlanError holds all that make no sense."""
    problems: list[Problem] = []
    name, rest = words[0], [word for word in words[1:] if word != PLAN]
    ours = dict(word.split("=", 1) for word in rest if "=" in word and key_of(word) in _OWN)
    others = [word for word in rest if key_of(word) not in _OWN]
    found = {key: value for key, text in ours.items() for value in [_value(key, text, problems)]}
    of_hydra = [w for w in others if w.startswith("hydra.launcher.")]
    search = [w for w in others if w.startswith("search.")]
    typed, axes = _overrides([w for w in others if w not in of_hydra + search], problems)
    if problems:
        raise PlanError(problems)
    return Request(
        name=name,
        typed=typed,
        axes=axes,
        launcher_words=of_hydra,
        search=dict(word.removeprefix("search.").split("=", 1) for word in search),
        only_plan=PLAN in words,
        **{_OWN[key]: value for key, value in found.items()},
    )


_OWN = {
    "size": "size",
    "seed": "seeds",
    "jobs": "jobs",
    "gpus": "gpus",
    "rows": "rows",
    "sweep_dir": "folder",
    "hydra/launcher": "launcher",
    "hydra/sweeper": "sweeper",
    "trials": "trials",
}


def _value(key: str, text: str, problems: list[Problem]) -> Any:
    """A key of ours, read; None and a problem where it can't be."""
    if key in ("jobs", "trials"):
        return _number(key, text, problems)
    if key == "seed":
        return _seeds(text, problems)
    if key == "gpus":
        return None if text == "auto" else _listed(text)
    if key == "rows":
        return _listed(text)
    if key == "sweep_dir":
        return Path(text).expanduser()
    if key in ("hydra/launcher", "hydra/sweeper"):
        known = LAUNCHERS if key == "hydra/launcher" else SWEEPERS
        return _option(key, text, list(known), problems)
    return text


def _number(key: str, text: str, problems: list[Problem]) -> int | None:
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    problems.append(Problem(key, f"is {text or 'empty'}; allowed are 1 or more", f"{key}=1"))
    return None


def _option(key: str, text: str, known: list[str], problems: list[Problem]) -> str | None:
    if text in known:
        return text
    guess = closest(text, known)
    message = f"there is no {text}; known are {', '.join(known)}"
    problems.append(Problem(key, message, f"{key}={guess}" if guess else ""))
    return None


def _seeds(text: str, problems: list[Problem]) -> list[int]:
    try:
        values = _values(f"seed={text.strip('[]') or 'null'}")
        seeds = [int(value) for value in values]
    except (*CompositionError, ValueError):
        seeds = []
    if not seeds or min(seeds) < 0 or len({*seeds}) < len(seeds):
        shown = f"is {text or 'empty'}; allowed are different whole numbers from 0 on"
        problems.append(Problem("seed", shown, "seed=0,1,2"))
    return seeds


def _values(word: str) -> list[str]:
    """The values of an override, each as it is typed."""
    override = parse([word])[0]
    if not override.is_sweep_override():
        return [word.partition("=")[2]]
    return [str(value) for value in override.sweep_string_iterator()]


def _overrides(words: Words, problems: list[Problem]) -> tuple[Words, dict[str, list[str]]]:
    """Overrides of every run, and those with several values, which are axes."""
    typed, axes = [], {}
    for word in words:
        if "=" not in word and not word.startswith("~"):
            problems.append(Problem(word, f"is neither {PLAN} nor KEY=VALUE", f"{word}="))
            continue
        try:
            several = _values(word)
        except CompositionError:
            several = []  # the check of the runs says what is wrong with it
        if len(several) > 1:
            axes[key_of(word)] = several
        elif key_of(word) in ("run_dir", "begin_from"):
            what = "is each run's own; sweep_dir=FOLDER says where all of them are"
            problems.append(Problem(key_of(word), what))
        else:
            typed.append(word)
    return typed, axes


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.strip("[]").split(",") if part.strip()]
