"""What is named in a list, `reward.of=[...]`: each name becomes a part with its options."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rlfactory._hydra import Composed, Composition, CompositionError, options, plain_option
from rlfactory.problems import Problem, closest

PARTED = {"reward": "reward", "eval_rewards": "reward", "logger": "logger"}
"""The keys that may have `of`, names, and `parts`, a mapping of options for each; and the group
that the names are options of."""

# below these any name is a key, and which ones there are is known only once `of` is read
_OPEN = re.compile(
    r"(reward\.(parts|weights|normalise|gates|clips)|(eval_rewards|logger)\.parts)[.=]"
)


def loosened(word: str) -> str:
    """An override of a part's option as one that Hydra takes before the part is there."""
    return f"++{word.lstrip('+')}" if _OPEN.match(word.lstrip("+")) else word


def with_parts(composed: Composed, places: Sequence[str] = ()) -> Composed:
    """Each name in `of` as a part: its option's values, under those that were given already.

    A part that brings a `_target_` is as it stands. `places` are searched for options too.
    """
    values, problems = dict(composed.values), list(composed.problems)
    for key, group in PARTED.items():
        node = values.get(key)
        if not isinstance(node, Mapping) or not _is_parted(node):
            continue
        known = _known(group, tuple(places))
        parts: dict[str, Any] = {}
        for name in node["of"]:
            given = node["parts"].get(name, {})
            if not isinstance(given, Mapping):
                problems.append(Problem(f"{key}.parts.{name}", f"is {given!r}; allowed is options"))
            elif "_target_" in given:
                parts[name] = given
            elif name in known:
                parts[name] = {**_option(group, name, tuple(places)), **given}
            else:
                problems.append(_unknown(key, group, name, [*known], node["of"]))
        stray = [name for name in node["parts"] if name not in node["of"]]
        problems += [_stray(key, name, node["of"]) for name in stray]
        values[key] = {**node, "parts": parts}
    return replace(composed, values=values, problems=problems)


def _is_parted(node: Mapping[str, Any]) -> bool:
    """Whether a node has names and parts; what else may be wrong with it is the plan's."""
    of, parts = node.get("of"), node.get("parts")
    return isinstance(of, list) and isinstance(parts, Mapping) and all(map(_is_name, of))


def _is_name(name: object) -> bool:
    return isinstance(name, str)


# read once: Hydra can't compose anew while its own command line runs a job
@cache
def _known(group: str, places: tuple[str, ...]) -> Mapping[str, Path]:
    return options(group, places)


@cache
def _option(group: str, name: str, places: tuple[str, ...]) -> Mapping[str, Any]:
    """The values of an option of a group."""
    try:
        plain = plain_option(_known(group, places)[name], group)
        if plain is not None:
            return plain
        found = ",".join("'" + place.replace("'", "\\'") + "'" for place in places)
        searched = [f"hydra.searchpath=[{found}]"] if places else []
        node = Composition([*searched, f"{group}={name}"]).changed().values[group]
    except CompositionError:
        return {}  # the plan then says that there is no _target_
    return node if isinstance(node, Mapping) else {}


def _unknown(key: str, group: str, name: str, known: Sequence[str], of: Sequence[str]) -> Problem:
    guess = closest(name, known)
    message = f"there is no {group} {name}; known are {', '.join(sorted(known))}"
    if guess is None:
        return Problem(f"{key}.of", message, f"rlfactory list {group}")
    meant = ",".join(guess if other == name else other for other in of)
    return Problem(f"{key}.of", f"{message}. Did you mean {guess}?", f"{key}.of=[{meant}]")


def _stray(key: str, name: str, of: Sequence[str]) -> Problem:
    named = ",".join([*of, name])
    message = f"has options, but {key}.of names no {name}"
    return Problem(f"{key}.parts.{name}", message, f"{key}.of=[{named}]")
