"""Composed configurations: files are merged once for the same choices, then values are changed."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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
    swept,
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
        swept: the words that files sweep over in a multirun.
    """

    values: dict[str, Any]
    choices: dict[str, str]
    problems: list[Problem] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    swept: list[str] = field(default_factory=list)


class Composition:
    """Composition in two steps: the chosen options are merged, then single values are changed.

    After the first step the keys that exist are known, so overrides can be checked without
    composing twice: composing takes most of the time of a refused command.
    """

    def __init__(self, chosen: Sequence[str]) -> None:
        """Merge the files of the `chosen` options, those of plug-ins included."""
        note_variables(chosen)
        self._chosen = parse(chosen)
        self._config: Any = loads(_pickled(chosen))
        self._config.hydra.runtime.cwd = os.getcwd()
        self.choices = options_of(self._config)

    @property
    def values(self) -> dict[str, Any]:
        """The values as written in the files, `${...}` unresolved."""
        return written(self._config)

    def replace(self, nodes: Mapping[str, Any]) -> None:
        """Give groups other values, `${...}` unresolved, than their merged files."""
        set_nodes(self._config, nodes)

    def changed(self, overrides: Sequence[Override] = ()) -> ComposedConfig:
        """The configuration with values changed, resolved."""
        note_variables([override.input_line or "" for override in overrides])
        apply_overrides(self._config, self._chosen, overrides)
        found = swept(self._config)
        return ComposedConfig(plain(self._config), dict(self.choices), swept=found)


def _pickled(chosen: Sequence[str]) -> bytes:
    """A merged configuration to make copies of; those of our own files are cached."""
    if plugins() or any("hydra" in override for override in chosen):
        return dumps(merged(chosen), HIGHEST_PROTOCOL)
    return _cached(tuple(chosen), packaged_files_state())


# jobs of a sweep often share their choices; a copy takes a fifteenth of the time of merging
@lru_cache(maxsize=512)
def _cached(chosen: tuple[str, ...], state: object) -> bytes:
    """The merged files. `state` is part of the cache key, since the files may be edited."""
    return dumps(merged(chosen), HIGHEST_PROTOCOL)
