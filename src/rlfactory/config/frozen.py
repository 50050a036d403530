"""The frozen configuration of a run folder, of this version or another: read with limits, upgraded,
checked by itself, and compared with another.

A run folder keeps the `config.yaml` it began with, which may be damaged, edited by hand, or
somebody else's. What it may name and of which type each value is are checked before anything is
built from it, as those of a command are. `upgrade` adds keys that came later.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from rlfactory.config.options import packaged_folder
from rlfactory.config.problems import Problem
from rlfactory.config.schema.root import COMPONENTS
from rlfactory.config.schema.signature import parameters_of
from rlfactory.config.schema.targets import is_allowed, is_installed, trusted_by, with_defaults
from rlfactory.config.schema_problems import LACKING, all_node_problems, root_problems
from rlfactory.utils.data_files import FileError, load_yaml, mismatch, read_yaml
from rlfactory.utils.dotted_keys import last_part, merged, texts
from rlfactory.utils.live_objects import is_reference

Config = Mapping[str, Any]
REMEDY = "restore it from a copy, or begin the run anew"
CHOICES = "choices"
LATER_KEYS: Config = {
    "begin_as": "continued",
    "engine": {"_target_": "rlfactory.engine.own.Own"},
    "eval_sets": {"of": [], "parts": {}, "rewards": {}, "counts": {}},
    "evaluation": {"noises": 1, "seed": None, "policy_fraction": 1.0},
    "learning_rate": {"schedule": "linear", "lora": 1e-4, "full": 1e-4, "head": 1e-4},
    "reference_from": "base",
    "resample": 0,
    "scoring": {"frames": 4},
    "tree": {"splits": [], "noise_scale": 1.0},
}
"""Keys that came later, with the values at which they change no result."""


def read_frozen(path: Path) -> dict[str, Any]:
    """The configuration in a file, upgraded to this version; not checked.

    Raises:
        FileNotFoundError: there is none.
        FileError: it can't be read, or holds no configuration.
    """
    content = read_yaml(path, remedy=REMEDY)
    if not isinstance(content, dict) or "iterations" not in content:
        raise FileError(path, "holds no configuration", REMEDY)
    if problem := mismatch(content.get(CHOICES) or {}, dict[str, str], CHOICES):
        raise FileError(path, problem, REMEDY)
    return upgrade(content)


def try_frozen(path: Path) -> dict[str, Any] | None:
    """As `read_frozen`; None where that raises, for what only looks for a run."""
    with suppress(FileError, FileNotFoundError):
        return read_frozen(path)
    return None


def upgrade(frozen: Config) -> dict[str, Any]:
    """A configuration with the keys that came later, which change nothing at their values; those of
    components have the constructor's default.
    """
    upgraded: dict[str, Any] = merged(_later_keys(), frozen)
    for group in COMPONENTS:
        node = upgraded.get(group)
        target = str(node.get("_target_")) if isinstance(node, dict) else ""
        if isinstance(node, dict) and is_installed(target) and not is_reference(target):
            upgraded[group] = with_defaults(node, group)
    return upgraded


@cache
def _later_keys() -> Config:
    """`LATER_KEYS`, and this version's defaults of keys that change no result at any value."""
    defaults = load_yaml((packaged_folder("conf") / "config.yaml").read_text(encoding="utf-8"))
    return {**LATER_KEYS, **{key: defaults[key] for key in NO_EFFECT_ON_RESULTS}}


def frozen_file_problems(frozen: Config) -> list[Problem]:
    """The problems of an upgraded configuration: targets that may not be imported, missing keys
    that change results, and values of a wrong type. Keys that only other versions know are none.
    """
    trusted = trusted_by(frozen)
    problems = [
        Problem(key, f"{target} lies outside the packages that may be named here")
        for key, target in texts(frozen)
        if last_part(key) == "_target_" and not is_allowed(target, trusted)
    ]
    of_root = [problem.key for problem in root_problems(frozen) if problem.message == LACKING]
    if missing := [*of_root, *_missing_component_keys(frozen)]:
        message = (
            f"config.yaml lacks {', '.join(missing)}: the run was started by another version of"
            " rlfactory; resume it with that version, or start a new run"
        )
        problems.append(Problem(missing[0], message))
    if problems:
        return problems
    return [*root_problems(frozen, may_have_others=True), *all_node_problems(frozen, {})]


def _missing_component_keys(frozen: Config) -> Iterator[str]:
    """The components that a configuration lacks, and their missing keys without a default."""
    for group in COMPONENTS:
        node = frozen.get(group)
        if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
            yield group
            continue
        needed = parameters_of(node)  # building the component reports a missing package
        yield from (f"{group}.{n}" for n, p in needed.items() if p.required and n not in node)


IGNORED = ("run_dir", "choices")
"""Keys that are not compared: a run may be moved, and choices show in the values they bring."""
NO_EFFECT_ON_RESULTS = ("checkpoint", "guard", "distilled_to")
"""Groups of keys, or keys, that change nothing that is computed: an older run may lack some
of them, or have others that this version removed."""
Difference = tuple[str, object, object]
MISSING = "nothing"


def differences(old: Config, new: Config) -> list[Difference]:
    """Each key that differs, with its two values; of a group with another option it alone."""
    before, after = old.get("choices", {}), new.get("choices", {})
    found: list[Difference] = []
    for key in [*old, *(key for key in new if key not in old)]:
        if key in IGNORED:
            continue
        below = [*_differing(key, old.get(key, MISSING), new.get(key, MISSING))]
        chosen = (before.get(key), after.get(key))
        if below and chosen[0] != chosen[1] and None not in chosen:
            below = [(key, *chosen)]
        found += below
    return found


def format_diff(found: Sequence[Difference]) -> str:
    """Differences in words."""
    changes = ((key, format_value(old), format_value(new)) for key, old, new in found)
    return ", ".join(f"{key}: {old} -> {new}" for key, old, new in changes)


def format_value(value: object) -> str:
    """A value as it is typed."""
    text = "null" if value is None else str(value)
    return text.lower() if isinstance(value, bool) else text


def _differing(key: str, old: object, new: object) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from _differing(f"{key}.{name}", old.get(name, MISSING), new.get(name, MISSING))
    elif MISSING in (old, new) and key.split(".")[0] in NO_EFFECT_ON_RESULTS:
        return
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield key, old, new
