"""A frozen configuration as it is read again: whole, by this version's measure, and harmless."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import yaml

from rlfactory.problems import Problem
from rlfactory.sameness import NO_RESULT
from rlfactory.settings import COMPONENTS, Settings
from rlfactory.shipped import shipped_folder
from rlfactory.signature import read
from rlfactory.source import TargetError
from rlfactory.targets import is_allowed

Config = Mapping[str, Any]


def filled(frozen: Config) -> dict[str, Any]:
    """A configuration with this version's defaults of the keys it lacks that change no result."""
    if not newer(frozen):
        return dict(frozen)
    defaults = yaml.safe_load((shipped_folder("conf") / "config.yaml").read_text(encoding="utf-8"))
    return {**frozen, **{k: _over(defaults[k], frozen.get(k)) for k in NO_RESULT if k in defaults}}


def newer(frozen: Config) -> list[str]:
    """The keys that a configuration lacks, of those that change no result."""
    return [key for key in _absent(frozen, Settings, "") if key.split(".")[0] in NO_RESULT]


def frozen_problems(frozen: Config) -> list[Problem]:
    """Why a frozen configuration can't be read by this version, or may not."""
    trust = frozen.get("trust")
    trusted = [str(package) for package in trust] if isinstance(trust, list) else []
    strange = [
        Problem(key, f"{target} lies outside the packages that may be named here")
        for key, target in _targets(frozen, "")
        if not is_allowed(target, trusted)
    ]
    lacking = [*_absent(filled(frozen), Settings, ""), *_absent_below(frozen)]
    if not lacking:
        return strange
    message = (
        f"config.yaml lacks {', '.join(lacking)}: the run was begun by another version of"
        " rlfactory; go on with that one, or begin again"
    )
    return [*strange, Problem(lacking[0], message)]


def _absent(values: Config, schema: Any, prefix: str) -> Iterator[str]:
    """The keys of a dataclass that a mapping lacks."""
    for field in fields(schema):
        key, inner = f"{prefix}{field.name}", values.get(field.name)
        if field.name not in values:
            yield key
        elif isinstance(field.type, type) and is_dataclass(field.type):
            yield from _absent(inner if isinstance(inner, Mapping) else {}, field.type, f"{key}.")


def _absent_below(frozen: Config) -> Iterator[str]:
    """The components that a configuration lacks, and what these have no default for."""
    for group in COMPONENTS:
        node = frozen.get(group)
        if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
            yield group
            continue
        try:
            needed = read(node["_target_"]).parameters
        except TargetError:
            continue  # building it says which package it is that is missing
        yield from (f"{group}.{n}" for n, p in needed.items() if p.required and n not in node)


def _targets(value: object, key: str) -> Iterator[tuple[str, str]]:
    """Every import path in a configuration, with its key."""
    pairs = enumerate(value) if isinstance(value, list) else ()
    for name, inner in value.items() if isinstance(value, Mapping) else pairs:
        below = f"{key}.{name}" if key else str(name)
        if name == "_target_":
            yield below, str(inner)
        else:
            yield from _targets(inner, below)


def _over(default: Any, given: Any) -> Any:
    """A mapping with another's values on top."""
    if not isinstance(default, Mapping) or not isinstance(given, Mapping):
        return default if given is None else given
    below = {k: _over(v, given[k]) if k in given else v for k, v in default.items()}
    return {**given, **below}
