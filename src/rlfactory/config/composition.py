"""Composed configurations: Hydra lists the files of the chosen options, which are merged here.

A file may choose options of other groups and set their keys. Where another option is chosen in the
end, these keys are not for it, and are left out.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rlfactory.config._hydra import (
    ListedFile,
    Override,
    changed,
    listed,
    overrides_dirname,
    read_yaml,
)
from rlfactory.config.options import folders, packaged_files_state
from rlfactory.config.problems import Problem
from rlfactory.config.schema.root import COMPONENTS
from rlfactory.config.schema.targets import plugins
from rlfactory.utils.dotted_keys import merged, value_at, with_values

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Layer:
    """A file: the options that it, or a file it builds on, chooses, and the values that it sets.

    `swept` has the values of its keys in a multirun, Hydra's `hydra.sweeper.params`.
    """

    group: str
    path: Path
    chosen: Mapping[str, str]
    values: Values
    swept: Values

    def is_for(self, group: str, choices: Mapping[str, str]) -> bool:
        """Whether the keys that it sets of a group are keys of the group's chosen option."""
        return self.chosen.get(group, choices.get(group)) == choices.get(group)


@dataclass(frozen=True)
class Composition:
    """The files of the chosen options.

    Attributes:
        choices: the option chosen of each group.
        layers: the files in the order in which they are merged.
    """

    choices: dict[str, str]
    layers: list[Layer]

    @classmethod
    def of(cls, chosen: Sequence[str], places: Sequence[str] = ()) -> "Composition":
        """The files that overrides choose; `places` are searched for options too."""
        if places or plugins():
            choices, files = listed(chosen, folders(places))
        else:
            choices, files = _listed(tuple(chosen), packaged_files_state())
        return cls(dict(choices), _layers(files, folders(places)))

    @cached_property
    def values(self) -> dict[str, Any]:
        """The merged values, `${...}` unresolved."""
        values: dict[str, Any] = {}
        for layer in self.layers:
            fitting = {k: v for k, v in layer.values.items() if self.has_effect(layer, k)}
            values = merged(values, fitting)
        return values

    @property
    def swept(self) -> dict[str, Any]:
        """The values of keys over which the files sweep in a multirun."""
        return {key: values for layer in self.layers for key, values in layer.swept.items()}

    def has_effect(self, layer: Layer, group: str) -> bool:
        """Whether what a file sets of a group, or at a key of the root, is merged."""
        if group not in COMPONENTS:
            return True
        is_own = layer.group == group
        return is_own or (layer.is_for(group, self.choices) and not self._has_no_options(group))

    def _has_no_options(self, group: str) -> bool:
        """Whether the chosen option of a group has no key but `_target_`, as regularizer=none."""
        own = [layer.values.get(group) for layer in self.layers if layer.group == group]
        return bool(own) and all(isinstance(n, Mapping) and [*n] == ["_target_"] for n in own)

    def has_left_out(self, key: str) -> bool:
        """Whether a file sets a key of an option that is not chosen, and no other sets it."""
        group, _, name = key.partition(".")
        nodes = (x.values.get(group) for x in self.layers if not self.has_effect(x, group))
        is_set = any(isinstance(node, Mapping) and name in node for node in nodes)
        return is_set and value_at(self.values, key, ...) is ...


@lru_cache(maxsize=512)  # jobs of a sweep often share their choices
def _listed(chosen: tuple[str, ...], state: object) -> tuple[dict[str, str], list[ListedFile]]:
    """The files of our own. `state` is part of the cache key, since they may be edited."""
    return listed(chosen, folders())


def _layers(files: Sequence[ListedFile], places: Sequence[Path]) -> list[Layer]:
    """The content of files, those that a file of the same group builds on before it."""
    layers, chosen_below = [], dict[str, dict[str, str]]()
    for file in files:
        group = file.name.partition("/")[0]
        path = next(p for place in places if (p := place / f"{file.name}.yaml").is_file())
        content = read_yaml(path, group)
        chosen = chosen_below.get(file.name, {}) | _overridden(content.get("defaults"))
        if file.parent.partition("/")[0] == group:
            chosen_below.setdefault(file.parent, {}).update(chosen)
        values = {key: value for key, value in content.items() if key not in ("defaults", "hydra")}
        values = with_values({}, {file.package: values}) if file.package else values
        swept = value_at(content, "hydra.sweeper.params", None) or {}
        layers.append(Layer(group, path, chosen, values, swept))
    return layers


def _overridden(defaults: object) -> dict[str, str]:
    """The options that a list of defaults chooses of other groups."""
    entries = [e for e in defaults if isinstance(e, Mapping)] if isinstance(defaults, list) else []
    return {
        str(key).removeprefix("override ").lstrip("/"): str(option)
        for entry in entries
        for key, option in entry.items()
        if str(key).startswith("override ")
    }


@dataclass(frozen=True)
class ComposedConfig:
    """A configuration as plain values, and what it was composed from.

    Attributes:
        values: the configuration, `${...}` resolved.
        choices: the option chosen of each group.
        problems: the problems of the overrides that were left out.
        overrides: the overrides that were applied.
        defaults: the values of the chosen options, before overrides of single keys.
        notes: what the plan says about the choices.
        composition: the files that were merged; None for a frozen configuration.
    """

    values: dict[str, Any]
    choices: dict[str, str]
    problems: list[Problem] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    defaults: Values = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    composition: Composition | None = None


def resolved(
    values: Values,
    choices: Mapping[str, str],
    overrides: Sequence[Override] = (),
    typed: Sequence[Override] = (),
) -> dict[str, Any]:
    """Merged values with single ones overridden and `${...}` resolved.

    Of Hydra's own, `${hydra:runtime.cwd}`, `${hydra:runtime.choices.GROUP}` and, of all that was
    `typed`, `${hydra:job.override_dirname}` can be named.
    """
    runtime = {"cwd": os.getcwd(), "choices": dict(choices)}
    # a run's folder may itself be named so
    own = [override for override in typed if override.key_or_group != "run_dir"]
    job = {"override_dirname": overrides_dirname(own)}
    return changed(values, overrides, {"runtime": runtime, "job": job})
