"""Keys that do not exist: another library's name, a key of another place or option, a misspelling.

A key is looked up once: in the table of other libraries' names, then among all keys that there are,
those of the configuration and of the options that are not chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.options import options
from rlfactory.config.peers.names import OTHER, Words, filled, find, nearest
from rlfactory.config.peers.values import candidates, prompts
from rlfactory.config.problems import (
    MISSPELT,
    Problem,
    closest,
    no_such_key,
    override_key,
    unknown_key,
)
from rlfactory.config.schema.root import COMPONENTS
from rlfactory.config.schema.signature import parameters_of
from rlfactory.utils.dotted_keys import last_part, leaves

Config = Mapping[str, Any]
USUAL = ("random_contiguous", "flow_sde")
"""Options that are suggested before others of their group."""
FEW = 12
"""Keys that a message lists."""
LIBRARIES = 3
"""Libraries that a message lists."""
SHOWN = 6
"""Places of a key that a message lists."""


def explain_unknown(
    key: str, value: str | None, at: str, known: Config, config: Config, places: Sequence[str] = ()
) -> Problem:
    """The problem of a key that does not exist, with what may be meant.

    Args:
        key: the key as typed.
        value: the value as typed; None where none was.
        at: the beginning of the key up to the first component that does not exist.
        known: the mapping that lacks it.
        config: the composed configuration.
        places: further folders of options.
    """
    if (meant := peer_name(key, value, config)) is not None:
        return meant
    group, _, below = key.partition(".")
    if value is not None and below in parameters_of(config.get(group)):
        message = f"there is no such key; the class of {group} has it, and + adds it"
        return Problem(key, message, instead=(f"+{key}={value}",))
    name, present = last_part(key), dict(leaves(config))
    of_options = {other: _keys_of(other, places) for other in COMPONENTS}
    if found := of_options.get(group, {}).get(below):
        return _of_options(key, value, group, below, found, config)
    if found := [leaf for leaf in present if last_part(leaf) == name]:
        return _at(key, value, found)
    if (problem := unknown_key(key, known, at)).fix:
        return problem
    for other, having in of_options.items():
        if same := sorted(own for own in having if last_part(own) == name):
            most = max(same, key=lambda own: len(having[own]))
            return _of_options(key, value, other, most, having[most], config)
    if (guess := closest(name, map(last_part, present), MISSPELT)) is not None:
        return _at(key, value, [leaf for leaf in present if last_part(leaf) == guess])
    elsewhere = None if value is None else peer_problem(key, value, config)
    return elsewhere or _nowhere(key, at, known)


def _nowhere(key: str, at: str, known: Config) -> Problem:
    """A key of which nothing is known: those beside it if they are few, else where to look."""
    names = {*known} - {"_target_"}
    group, dot, _ = key.partition(".")
    if len(names) <= FEW:
        return Problem(key, no_such_key(names))
    group = group if dot and group in COMPONENTS and at != group else nearest(key) or ""
    message = "there is no such key, and no library's name for one that is known here"
    if group:
        told = f"{message}; the nearest are those of {group}"
        return Problem(key, told, f"rlfactory explain {group}")
    return Problem(key, message, "rlfactory list")


def peer_problem(key: str, value: str, config: Config) -> Problem | None:
    """The problem of a name that other libraries use for another key; None if none does.

    Args:
        key: the key as typed, which may be dotted.
        value: the value as typed.
        config: the composed configuration.
    """
    row = find(key, config)
    if row is None:
        return None
    found = tuple(candidates(row, value, config))
    meant = row.meaning(value)
    meaning = f"is {meant} here" if meant else "needs no key here"
    if not meant and not row.caveat:
        meaning = "has no counterpart here"
    elif not found and value:
        known = f"; known are {', '.join(row.choices)}" if row.choices else ""
        meaning = f"has no {value} here{known}"
    caveat = f": {row.caveat}" if row.caveat else ""
    peers = ", ".join(row.peers[:LIBRARIES])
    message = f"there is no such key. {row.name} ({peers}) {meaning}{caveat}"
    whole = [words for words in found if not any(map(OTHER.search, words))]
    return Problem(key, message, instead=next(iter(whole), None), candidates=found)


def peer_name(key: str, value: str | None, config: Config) -> Problem | None:
    """A name of other libraries, below no other group than that of the key that it stands for, if
    that has one.
    """
    problem = None if value is None else peer_problem(key, value, config)
    group = key.partition(".")[0]
    if problem is None or group == key or group not in config:
        return problem
    meant = {override_key(word) for words in problem.candidates for word in words}
    is_below = any(k.startswith(f"{group}.") or k not in COMPONENTS and "." not in k for k in meant)
    return problem if is_below and key not in meant else None


def _of_options(
    key: str, value: str | None, group: str, name: str, found: Sequence[str], config: Config
) -> Problem:
    """A key that options of a group have that are not chosen."""
    full = name if key == f"{group}.{name}" else f"{group}.{name}"
    message = f"there is no such key here; {full} is a key of {group}={', '.join(found)}"
    usual = sorted(found, key=lambda option: option not in USUAL)
    if value is None:
        return Problem(key, message, f"rlfactory explain {group}.{name} {group}={usual[0]}")
    words = [(f"{group}={option}", f"{group}.{name}={value}") for option in usual]
    row = find(key, config) if key == f"{group}.{name}" else None
    known = candidates(row, value, config) if row is not None else []
    if key == "prompts.path":
        known, words = prompts(value, config), words[:0]
    known = [words for words in known if key in map(override_key, words)]
    first = (f"{group}={usual[0]}", f"{group}.{name}={value}")
    return Problem(key, message, instead=first, candidates=(*known, *words))


def _at(key: str, value: str | None, found: Sequence[str]) -> Problem:
    """A key that the configuration has at one or several other places."""
    if len(found) == 1:
        message = f"there is no such key. Did you mean {found[0]}?"
        instead = None if value is None else (f"{found[0]}={value}",)
        return Problem(key, message, f"rlfactory explain {found[0]}", instead)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    message = f"there is no such key. Did you mean one of {', '.join(found[:SHOWN])}{more}?"
    return Problem(key, message, f"rlfactory explain {last_part(found[0])}")


def _keys_of(group: str, places: Sequence[str]) -> dict[str, list[str]]:
    """All keys of a group's options, each with the options that have it."""
    found: dict[str, list[str]] = {}
    for option, path in options(group, places).items() if group in COMPONENTS else ():
        for key in sorted(_keys(path, group)):
            found.setdefault(key, []).append(option)
    return found


@cache
def _keys(path: Path, group: str) -> frozenset[str]:
    """The keys of an option: the parameters of its target, read from source, and keys below them
    that its file has.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        node = content.get(group, content)
        below = {key for key, _ in leaves(node) if "." in key}
    except (OSError, ValueError, yaml.YAMLError, AttributeError):
        return frozenset()
    parameters = parameters_of(node)
    return frozenset({*parameters, *below}) if parameters else frozenset()


def verified(
    problems: Sequence[Problem],
    overrides: Sequence[str],
    has_plan: Callable[[Sequence[str]], bool | None],
) -> list[Problem]:
    """The problems; unknown names with the first of their candidates that gives a plan, or else
    that can be composed.

    Args:
        problems: those of a command.
        overrides: its words.
        has_plan: whether words give a plan; None where they can't even be composed.
    """
    faulty = {problem.key for problem in problems}
    rest = [word for word in overrides if override_key(word) not in faulty]
    chosen = {override_key(word) for word in rest}

    def tried(problem: Problem) -> Problem:
        composed: list[Words] = []
        for candidate in problem.candidates:
            words = filled(candidate, overrides)
            if words is None or any(override_key(w) in chosen and w not in rest for w in words):
                continue
            if is_plan := has_plan([*rest, *(word for word in words if word not in rest)]):
                return replace(problem, instead=words)
            composed += [words] if is_plan is not None else []
        return replace(problem, instead=composed[0] if composed else None)

    return [tried(p) if p.candidates else p for p in problems]
