"""Frozen configurations of other versions: missing keys, and import paths that are not allowed.

A run folder keeps the `config.yaml` it began with. `with_defaults` adds keys that came later and
change no result, and `check_frozen` says what is missing or may not be imported.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import yaml

from rlfactory.config.diff import NO_EFFECT_ON_RESULTS
from rlfactory.config.paths import packaged_folder
from rlfactory.config.problems import Problem
from rlfactory.config.schema.root import COMPONENTS, RootConfig
from rlfactory.config.schema.signature import parameters_of
from rlfactory.config.schema.targets import is_allowed, trusted_by

Config = Mapping[str, Any]


def with_defaults(frozen: Config) -> dict[str, Any]:
    """A configuration with this version's defaults of the keys it lacks that change no result."""
    if not missing_keys(frozen):
        return dict(frozen)
    defaults = yaml.safe_load((packaged_folder("conf") / "config.yaml").read_text(encoding="utf-8"))
    known = [key for key in NO_EFFECT_ON_RESULTS if key in defaults]
    filled = {k: _merged(defaults[k], frozen[k]) if k in frozen else defaults[k] for k in known}
    return {**frozen, **filled}


def with_new_keys(frozen: Config, current: Config) -> dict[str, Any]:
    """A configuration with the keys of its components that came later.

    Added are those that `current` sets, with the constructor's default, which is what a component
    without the key does.
    """
    filled = dict(frozen)
    for group in COMPONENTS:
        node, other = frozen.get(group), current.get(group)
        if not isinstance(node, Mapping) or not isinstance(other, Mapping):
            continue
        target = node.get("_target_")
        if not isinstance(target, str) or target != other.get("_target_"):
            continue
        parameters = parameters_of(node)
        new = [name for name in other if name not in node and name in parameters]
        defaults = {name: parameters[name].plain_default for name in new}
        filled[group] = {**node, **{k: v for k, v in defaults.items() if v is not ...}}
    return filled


def missing_keys(frozen: Config) -> list[str]:
    """The keys that a configuration lacks, of those that change no result."""
    missing = _missing_root_keys(frozen, RootConfig, "")
    return [key for key in missing if key.split(".")[0] in NO_EFFECT_ON_RESULTS]


def check_frozen(frozen: Config) -> list[Problem]:
    """Problems of a frozen configuration: targets that may not be imported, and missing keys that
    change results.
    """
    trusted = trusted_by(frozen)
    refused = [
        Problem(key, f"{target} lies outside the packages that may be named here")
        for key, target in _targets(frozen, "")
        if not is_allowed(target, trusted)
    ]
    missing = [
        *_missing_root_keys(with_defaults(frozen), RootConfig, ""),
        *_missing_component_keys(frozen),
    ]
    if not missing:
        return refused
    message = (
        f"config.yaml lacks {', '.join(missing)}: the run was started by another version of"
        " rlfactory; resume it with that version, or start a new run"
    )
    return [*refused, Problem(missing[0], message)]


def _missing_root_keys(values: Config, schema: Any, prefix: str) -> Iterator[str]:
    """The keys of a dataclass that a mapping lacks."""
    for field in fields(schema):
        key, inner = f"{prefix}{field.name}", values.get(field.name)
        if field.name not in values:
            yield key
        elif isinstance(field.type, type) and is_dataclass(field.type):
            below = inner if isinstance(inner, Mapping) else {}
            yield from _missing_root_keys(below, field.type, f"{key}.")


def _missing_component_keys(frozen: Config) -> Iterator[str]:
    """The components that a configuration lacks, and their missing keys without a default."""
    for group in COMPONENTS:
        node = frozen.get(group)
        if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
            yield group
            continue
        needed = parameters_of(node)  # building the component reports a missing package
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


def _merged(default: Any, given: Any) -> Any:
    """A mapping with another one's values on top."""
    if not isinstance(default, Mapping) or not isinstance(given, Mapping):
        return default if given is None and isinstance(default, Mapping) else given
    below = {k: _merged(v, given[k]) if k in given else v for k, v in default.items()}
    return {**given, **below}
