"""Composed configurations: files are merged once for the same choices, then values are changed."""

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pickle import HIGHEST_PROTOCOL, dumps, loads  # of objects in memory alone
from typing import Any

from rlfactory.config._hydra import (
    Override,
    apply_overrides,
    merged,
    note_variables,
    options_of,
    parse,
    plain,
    set_nodes,
    written,
)
from rlfactory.config.paths import packaged_files_state
from rlfactory.config.problems import Problem
from rlfactory.config.schema.targets import plugins


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
    """

    values: dict[str, Any]
    choices: dict[str, str]
    problems: list[Problem] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Composition:
    """Composition in two steps: the chosen options are merged, then single values are changed.

    After the first step the keys that exist are known, so overrides can be checked without
    composing twice: composing takes most of the time of a refused command.
    """

    def __init__(self, chosen: Sequence[str]) -> None:
        """Merge the files of the `chosen` options, those of plug-ins included."""
        note_variables(chosen)
        self._chosen = parse(chosen)
        self._merge, self._is_shared = _composed(chosen), True

    @property
    def values(self) -> dict[str, Any]:
        """The values as written in the files, `${...}` unresolved."""
        return deepcopy(self._merge.values)

    @property
    def choices(self) -> dict[str, str]:
        """The option chosen of each group."""
        return dict(self._merge.choices)

    def replace(self, nodes: Mapping[str, Any]) -> None:
        """Give groups other values, `${...}` unresolved, than their merged files."""
        if nodes:
            config = self._own()
            set_nodes(config, nodes)
            self._merge = _Merge(config)

    def changed(self, overrides: Sequence[Override] = ()) -> ComposedConfig:
        """The configuration with values changed, resolved."""
        note_variables([override.input_line or "" for override in overrides])
        config = self._own()
        apply_overrides(config, self._chosen, overrides)
        self._merge = _Merge(config)
        return ComposedConfig(plain(config), self.choices)

    def _own(self) -> Any:
        """The merged configuration, which may be changed from now on."""
        if not self._is_shared:
            return self._merge.config
        self._is_shared = False
        config: Any = loads(self._merge.pickled)
        config.hydra.runtime.cwd = os.getcwd()
        return config


class _Merge:
    """A merged configuration, and what is read of it; not to be changed where it is shared."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @cached_property
    def values(self) -> dict[str, Any]:
        return written(self.config)

    @cached_property
    def pickled(self) -> bytes:
        """What copies are made of, in half the time of `deepcopy`."""
        return dumps(self.config, HIGHEST_PROTOCOL)

    @cached_property
    def choices(self) -> dict[str, str]:
        return options_of(self.config)


def _composed(chosen: Sequence[str]) -> _Merge:
    """A merged configuration, not to be changed; those of our own files are cached."""
    if plugins() or any("hydra" in override for override in chosen):
        return _Merge(merged(chosen))
    return _cached_merge(tuple(chosen), packaged_files_state())


# jobs of a sweep often share their choices; a copy takes a fifteenth of the time of merging
@lru_cache(maxsize=512)
def _cached_merge(chosen: tuple[str, ...], state: object) -> _Merge:
    """The merged files. `state` is part of the cache key, since the files may be edited."""
    return _Merge(merged(chosen))
