"""The frozen configuration of a run folder: read with limits, upgraded, and checked by itself.

It may be damaged, edited by hand, or somebody else's. What it may name and of which type each value
is are checked before anything is built from it, as those of a command are.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from rlfactory.config.compat import check_frozen, upgrade, with_defaults
from rlfactory.config.problems import Problem
from rlfactory.config.schema.root import COMPONENTS, RootConfig
from rlfactory.config.schema_problems import all_node_problems, root_problems
from rlfactory.utils.data_files import FileError, mismatch, read_yaml

Config = Mapping[str, Any]
REMEDY = "restore it from a copy, or begin the run anew"
CHOICES = "choices"
LARGEST_SEED = 2**63 - 1


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


def frozen_file_problems(frozen: Config) -> list[Problem]:
    """The problems of an upgraded configuration: what it names, what it lacks, and values of a
    wrong type. Keys that only other versions know are none.
    """
    if problems := check_frozen(frozen):
        return problems
    values = _known(with_defaults(frozen), RootConfig)
    problems = [p for p in root_problems(values) if p.key not in COMPONENTS]
    problems += all_node_problems(frozen, {})
    if not problems and abs(values["seed"]) > LARGEST_SEED:
        problems.append(Problem("seed", f"is {values['seed']}; allowed is at most {LARGEST_SEED}"))
    return problems


def _known(values: Config, schema: Any) -> dict[str, Any]:
    """The keys of a mapping that a dataclass has, also in the mappings inside it."""
    kinds = {field.name: field.type for field in fields(schema)}
    return {
        name: _known(value, kinds[name])
        if is_dataclass(kinds[name]) and isinstance(value, Mapping)
        else value
        for name, value in values.items()
        if name in kinds
    }
