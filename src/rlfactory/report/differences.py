"""The configuration keys in which the rows of a table differ."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config.diff import IGNORED
from rlfactory.config.diff import format_value as typed

Config = Mapping[str, Any]
QUIET = (*IGNORED, "seed", "logger", "checkpoint", "trust")
"""Keys that do not describe an experiment."""
WITHOUT_EFFECT = (
    *("hardware", "scoring", "guard", "prompt_cache", "max_minutes"),
    *("evaluation.every", "evaluation.preview_every", "evaluation.grid"),
)
"""Keys, and groups of keys, in which runs of one row may differ: they change no result."""
_ABSENT = "–"
_LONGEST = 60


def flat(config: Config) -> dict[str, str]:
    """Every leaf key that can change a result, with its value as it is typed."""
    kept = {key: value for key, value in config.items() if key not in QUIET}
    if kept.get("begin_from"):
        # without the seed: runs of other seeds began with the checkpoint of theirs
        kept["begin_from"] = re.sub(r"-s\d+$", "", Path(str(kept["begin_from"])).name)
    return {key: shown(v) for key, v in _leaves("", kept) if not _has_no_effect(key)}


def distinct(rows: Sequence[Sequence[Config]]) -> dict[str, list[str]]:
    """The keys in which rows differ, each with a value per row.

    A row whose own configurations differ has all of their values. Where rows chose different
    options of a group, the group itself is a key, and of the keys below it only those count in
    which rows with the same option differ.
    """
    filled = [row for row in rows if row]
    differing = {
        group: v for group, v in _choices(filled).items() if len({*v}) > 1 and group not in QUIET
    }
    flats = [[flat(config) for config in row] for row in filled]
    for key in dict.fromkeys(key for row in flats for config in row for key in config):
        values = [_values(key, row) for row in flats]
        options = differing.get(key.partition(".")[0], [""] * len(filled))
        if key not in differing and _differ(values, options):
            differing[key] = values
    return {key: _with_gaps(rows, values) for key, values in differing.items()}


def shown(value: object) -> str:
    """A value as it is typed, lists without spaces, cut to 60 letters."""
    if isinstance(value, list):
        value = "[" + ",".join(typed(item) for item in value) + "]"
    text = " ".join(typed(value).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _choices(rows: Sequence[Sequence[Config]]) -> dict[str, list[str]]:
    """The options chosen of each group, a value a row."""
    of = [[config.get("choices", {}) for config in row] for row in rows]
    groups = dict.fromkeys(group for row in of for choices in row for group in choices)
    # an experiment is a bundle of choices, which are listed themselves
    hidden = {"experiment", *QUIET, *WITHOUT_EFFECT}
    return {g: [_values(g, row) for row in of] for g in groups if g not in hidden}


def _values(key: str, configs: Sequence[Mapping[str, Any]]) -> str:
    values = dict.fromkeys(str(config.get(key, _ABSENT)) for config in configs)
    return ", ".join(values) or _ABSENT


def _differ(values: Sequence[str], options: Sequence[str]) -> bool:
    """Whether values differ among rows with the same option."""
    seen: dict[str, str] = {}
    return any(
        seen.setdefault(option, value) != value
        for option, value in zip(options, values, strict=True)
    )


def _with_gaps(rows: Sequence[Sequence[Config]], values: Sequence[str]) -> list[str]:
    """A value for each row: `values` skips the rows without configurations."""
    rest = iter(values)
    return [next(rest) if row else _ABSENT for row in rows]


def _has_no_effect(key: str) -> bool:
    return any(key == hidden or key.startswith(f"{hidden}.") for hidden in WITHOUT_EFFECT)


def _leaves(prefix: str, node: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for key, value in node.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            yield from _leaves(name, value)
        else:
            yield name, value
