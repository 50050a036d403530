"""In which keys configurations differ, and nothing of the many in which they agree."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.sameness import NO_MATTER
from rlfactory.sameness import shown as typed

Config = Mapping[str, Any]
QUIET = (*NO_MATTER, "seed", "logger", "checkpoint", "trust")
"""Keys that say nothing of what was tried."""
_ABSENT = "–"
_LONGEST = 60


def flat(config: Config) -> dict[str, str]:
    """Every key with its value as it is typed, but for the quiet ones."""
    kept = {key: value for key, value in config.items() if key not in QUIET}
    if kept.get("begin_from"):
        # a path of one seed, where runs of other seeds began with the same of theirs
        kept["begin_from"] = re.sub(r"-s\d+$", "", Path(str(kept["begin_from"])).name)
    return {key: shown(value) for key, value in _leaves("", kept)}


def distinct(rows: Sequence[Sequence[Config]]) -> dict[str, list[str]]:
    """For each key in which rows differ a value a row; a row's own configurations may differ too,
    then it has all of their values.

    Where rows chose other options of a group, that is said, and of the group's keys only those in
    which rows with the same option differ.
    """
    filled = [row for row in rows if row]
    told = {
        group: v for group, v in _choices(filled).items() if len({*v}) > 1 and group not in QUIET
    }
    flats = [[flat(config) for config in row] for row in filled]
    for key in dict.fromkeys(key for row in flats for config in row for key in config):
        values = [_values(key, row) for row in flats]
        options = told.get(key.partition(".")[0], [""] * len(filled))
        if key not in told and _differ(values, options):
            told[key] = values
    return {key: _with_gaps(rows, values) for key, values in told.items()}


def shown(value: object) -> str:
    """A value as it is typed, lists without spaces, not too long."""
    if isinstance(value, list):
        value = "[" + ",".join(typed(item) for item in value) + "]"
    text = " ".join(typed(value).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _choices(rows: Sequence[Sequence[Config]]) -> dict[str, list[str]]:
    """The options chosen of each group, a value a row."""
    of = [[config.get("choices", {}) for config in row] for row in rows]
    groups = dict.fromkeys(group for row in of for choices in row for group in choices)
    # an experiment is a bundle of the choices that are told
    return {g: [_values(g, row) for row in of] for g in groups if g not in ("experiment", *QUIET)}


def _values(key: str, configs: Sequence[Mapping[str, Any]]) -> str:
    found = dict.fromkeys(str(config.get(key, _ABSENT)) for config in configs)
    return ", ".join(found) or _ABSENT


def _differ(values: Sequence[str], options: Sequence[str]) -> bool:
    """Whether values differ among rows of one option."""
    seen: dict[str, str] = {}
    return any(
        seen.setdefault(option, value) != value
        for option, value in zip(options, values, strict=True)
    )


def _with_gaps(rows: Sequence[Sequence[Config]], values: Sequence[str]) -> list[str]:
    """A value for each row, where those without configurations had none."""
    rest = iter(values)
    return [next(rest) if row else _ABSENT for row in rows]


def _leaves(prefix: str, node: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for key, value in node.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            yield from _leaves(name, value)
        else:
            yield name, value
