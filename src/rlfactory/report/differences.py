"""The configuration keys in which the rows of a table differ."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
ABSENT_VALUE = "–"
"""The value of a key that a row has not."""
_LONGEST = 60


def flat(config: Config) -> dict[str, str]:
    """Every leaf key that can change a result, with its value as it is typed."""
    kept = {key: value for key, value in config.items() if key not in QUIET}
    if kept.get("begin_from"):
        # without the seed: runs of other seeds began with the checkpoint of theirs
        kept["begin_from"] = re.sub(r"-s\d+$", "", Path(str(kept["begin_from"])).name)
    return {key: shown(v) for key, v in _leaves("", kept) if not _is_in(key, WITHOUT_EFFECT)}


Typed = frozenset[str] | None
"""The keys that were typed for the runs of a row; None where that is unknown."""


def distinct(
    rows: Sequence[Sequence[Config]], typed: Sequence[Typed] | None = None
) -> dict[str, list[str]]:
    """The keys in which rows differ, each with a value per row.

    A row whose own configurations differ has all of their values. Where rows chose different
    options, keys follow from them: a key that differs only between rows of different options is
    left out, unless it was typed. Where it is unknown what was typed, only keys of the chosen group
    itself are.

    Args:
        rows: the configurations of each row's runs.
        typed: what was typed for each row; None where that is unknown of all.
    """
    filled = [row for row in rows if row]
    unknown: list[Typed] = [None] * len(rows)
    known = union([keys for row, keys in zip(rows, typed or unknown, strict=True) if row])
    choices = {g: v for g, v in _choices(filled).items() if len({*v}) > 1}
    roots = {g: values for g, values in choices.items() if known is not None and g in known}
    if "experiment" not in roots:
        choices.pop("experiment", None)  # a bundle of choices, which are listed themselves
    options = [*zip(*roots.values(), strict=True)] or [()] * len(filled)
    differing = {g: v for g, v in choices.items() if g in roots or _differ(v, options)}
    # choosing a group's option is not typing its keys
    groups = {group for row in filled for config in row for group in config.get("choices", {})}
    flats = [[flat(config) for config in row] for row in filled]
    for key in dict.fromkeys(key for row in flats for config in row for key in config):
        values = [_values(key, row) for row in flats]
        own = choices.get(key.partition(".")[0], [""] * len(filled))
        same_options = [*zip(options, own, strict=True)]
        is_typed = len({*values}) > 1 and known is not None and _is_in(key, known - groups)
        if key not in differing and (is_typed or _differ(values, same_options)):
            differing[key] = values
    return {key: _with_gaps(rows, values) for key, values in differing.items()}


def following(rows: Sequence[Sequence[Config]], typed: Sequence[Typed]) -> list[str]:
    """The keys that differ between rows as their options bring them; nobody typed these."""
    named = distinct(rows, typed)
    return [key for key in distinct(rows) if key not in named]


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
    hidden = {*QUIET, *WITHOUT_EFFECT}
    return {g: [_values(g, row) for row in of] for g in groups if g not in hidden}


def union(typed: Sequence[Typed]) -> Typed:
    """All keys that were typed; None where it is unknown of a row."""
    known = [keys for keys in typed if keys is not None]
    return frozenset().union(*known) if len(known) == len(typed) else None


def _is_in(key: str, chosen: Iterable[str]) -> bool:
    """Whether a key, or a mapping that holds it, is among the chosen ones."""
    return any(key == word or key.startswith(f"{word}.") for word in chosen)


def _values(key: str, configs: Sequence[Mapping[str, Any]]) -> str:
    values = dict.fromkeys(str(config.get(key, ABSENT_VALUE)) for config in configs)
    return ", ".join(values) or ABSENT_VALUE


def _differ(values: Sequence[str], options: Sequence[object]) -> bool:
    """Whether values differ among rows with the same options."""
    seen: dict[object, str] = {}
    return any(
        seen.setdefault(option, value) != value
        for option, value in zip(options, values, strict=True)
    )


def _with_gaps(rows: Sequence[Sequence[Config]], values: Sequence[str]) -> list[str]:
    """A value for each row: `values` skips the rows without configurations."""
    rest = iter(values)
    return [next(rest) if row else ABSENT_VALUE for row in rows]


def _leaves(prefix: str, node: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for key, value in node.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            yield from _leaves(name, value)
        else:
            yield name, value
