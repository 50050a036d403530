"""Keys that do not exist: a misspelling, a key of another place or option, another library's name.

Looked for in this order: the table of other libraries' names, the same key elsewhere in the
configuration, a similar key at the same place, the same key of options that are not chosen.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.dotted_keys import leaves
from rlfactory.config.options import options
from rlfactory.config.peers.names import OTHER, filled, find, nearest
from rlfactory.config.peers.values import number, prompts
from rlfactory.config.problems import (
    MISSPELT,
    Problem,
    closest,
    no_such_key,
    override_key,
    unknown_key,
)
from rlfactory.config.schema.root import COMPONENTS
from rlfactory.config.schema.signature import read_signature
from rlfactory.config.schema.static_names import TargetError

Config = Mapping[str, Any]
Words = tuple[str, ...]
USUAL = ("random_contiguous", "flow_sde")
"""Options that are suggested before others of their group."""
FEW = 12
"""Keys that a message lists."""
LIBRARIES = 3
"""Libraries that a message lists."""
SHOWN = 6
"""Places of a key that a message lists."""


@dataclass(frozen=True)
class UnknownKey(Problem):
    """A key that does not exist.

    Attributes:
        candidates: words that may take the place of the override, most fitting first.
    """

    candidates: tuple[Words, ...] = ()


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
    return (
        _peer_name(key, value, config)
        or _key_of_other_options(key, value, config, places)
        or _elsewhere(key, value, config)
        or _misspelt(key, value, at, known)
        or _misspelt_key_of_other_options(key, value, places)
        or _only_in_other_options(key, value, places)
        or _misspelt_elsewhere(key, value, config)
        or _nowhere(key, at, known)
    )


def _nowhere(key: str, at: str, known: Config) -> Problem:
    """A key of which nothing is known: those beside it if they are few, else where to look."""
    names = {*known} - {"_target_"}
    group, dot, _ = key.partition(".")
    if len(names) <= FEW:
        return Problem(key, no_such_key(names))
    group = group if dot and group in COMPONENTS and at != group else nearest(key) or ""
    message = "there is no such key, and no library's name for one that is known here"
    if group:
        return Problem(
            key, f"{message}; the nearest are those of {group}", f"rlfactory explain {group}"
        )
    return Problem(key, message, "rlfactory list")


def peer_problem(key: str, value: str, config: Config) -> UnknownKey | None:
    """The problem of a name that other libraries use for another key; None if none does.

    Args:
        key: the key as typed, which may be dotted.
        value: the value as typed.
        config: the composed configuration.
    """
    row = find(key, config)
    if row is None:
        return None
    candidates = tuple(row.candidates(value, config))
    meant = row.meaning(value)
    meaning = f"is {meant} here" if meant else "needs no key here"
    if not meant and not row.caveat:
        meaning = "has no counterpart here"
    elif not candidates:
        known = f"; known are {', '.join(row.choices)}" if row.choices else ""
        meaning = f"has no {value} here{known}"
    caveat = f": {row.caveat}" if row.caveat else ""
    peers = ", ".join(row.peers[:LIBRARIES])
    message = f"there is no such key. {row.name} ({peers}) {meaning}{caveat}"
    whole = [words for words in candidates if not any(map(OTHER.search, words))]
    return UnknownKey(key, message, instead=next(iter(whole), None), candidates=candidates)


def _peer_name(key: str, value: str | None, config: Config) -> Problem | None:
    """A name of other libraries, below no other group than that of the key that it stands for."""
    problem = None if value is None else peer_problem(key, value, config)
    group = key.partition(".")[0]
    if problem is None or group == key or group not in config:
        return problem
    meant = {override_key(word) for words in problem.candidates for word in words}
    is_below = any(other.startswith(f"{group}.") for other in meant)
    return problem if is_below and key not in meant else None


def _key_of_other_options(
    key: str, value: str | None, config: Config, places: Sequence[str]
) -> Problem | None:
    """A key `GROUP.NAME` that only options of the group have that are not chosen, or that the
    chosen one's class has and its file has not.
    """
    group, _, name = key.partition(".")
    if group not in COMPONENTS or not name:
        return None
    if value is not None and name in _parameters(config.get(group)):
        message = f"there is no such key; the class of {group} has it, and + adds it"
        return Problem(key, message, instead=(f"+{key}={value}",))
    problem = _of_options(key, group, name, value, _options_with(group, name, places))
    if not isinstance(problem, UnknownKey) or value is None:
        return problem
    row = find(key, config)
    known = row.candidates(value, config) if row is not None else []
    if key == "prompts.path":
        known = prompts(value, config)
    first = [words for words in known if key in map(override_key, words)]
    others = () if key == "prompts.path" else problem.candidates
    return replace(problem, candidates=(*first, *others))


def _parameters(node: object) -> Collection[str]:
    """The parameters of a component's class; empty where it can't be read."""
    try:
        return read_signature(str(node["_target_"])).parameters if isinstance(node, Mapping) else ()
    except (KeyError, TargetError):
        return ()


def _only_in_other_options(key: str, value: str | None, places: Sequence[str]) -> Problem | None:
    """A key that only options have that are not chosen, of any group."""
    name = key.rpartition(".")[2]
    for group in COMPONENTS:
        by_key: dict[str, list[str]] = {}
        for option, path in options(group, places).items():
            for own in _option_keys(path, group):
                if own.rpartition(".")[2] == name:
                    by_key.setdefault(own, []).append(option)
        if by_key:
            meant = max(sorted(by_key), key=lambda own: len(by_key[own]))
            return _of_options(key, group, meant, value, by_key[meant])
    return None


def _of_options(
    key: str, group: str, name: str, value: str | None, found: Sequence[str]
) -> Problem | None:
    if not found:
        return None
    meant = name if key == f"{group}.{name}" else f"{group}.{name}"
    message = f"there is no such key here; {meant} is a key of {group}={', '.join(found)}"
    usual = sorted(found, key=lambda option: option not in USUAL)
    if value is None:
        return Problem(key, message, f"rlfactory explain {group}.{name} {group}={usual[0]}")
    chosen = (f"{group}.{name}={value}",)
    candidates = tuple((f"{group}={option}", *chosen) for option in usual)
    return UnknownKey(key, message, instead=candidates[0], candidates=candidates)


def _elsewhere(key: str, value: str | None, config: Config) -> Problem | None:
    """A key that the configuration has at another place."""
    name = key.rpartition(".")[2]
    return _at(key, value, [leaf for leaf, _ in leaves(config) if leaf.rpartition(".")[2] == name])


def _misspelt_elsewhere(key: str, value: str | None, config: Config) -> Problem | None:
    """A key that is similar to one at another place."""
    by_name: dict[str, list[str]] = {}
    for leaf, present in leaves(config):
        if _may_be(value, present):
            by_name.setdefault(leaf.rpartition(".")[2], []).append(leaf)
    name = closest(key.rpartition(".")[2], by_name, MISSPELT)
    return _at(key, value, by_name[name]) if name else None


def _at(key: str, value: str | None, found: Sequence[str]) -> Problem | None:
    if not found:
        return None
    if len(found) == 1:
        message = f"there is no such key. Did you mean {found[0]}?"
        instead = None if value is None else (f"{found[0]}={value}",)
        return Problem(key, message, f"rlfactory explain {found[0]}", instead)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    message = f"there is no such key. Did you mean one of {', '.join(found[:SHOWN])}{more}?"
    return Problem(key, message, f"rlfactory explain {found[0].rpartition('.')[2]}")


def _misspelt(key: str, value: str | None, at: str, known: Config) -> Problem | None:
    """A key that is similar to another one at its place, of a value of the same type."""
    problem = unknown_key(key, known, at)
    meant = problem.fix.removeprefix(at.rpartition(".")[0]).lstrip(".").partition(".")[0]
    if not problem.fix or not _may_be(value, known.get(meant)):
        return None
    return problem


def _may_be(typed: str | None, present: object) -> bool:
    """Whether a typed value may replace a present one: a number a number, a mapping nothing."""
    if typed is None or present is None:
        return True
    if isinstance(present, bool) or typed.lower() in ("true", "false"):
        return isinstance(present, bool) and typed.lower() in ("true", "false")
    is_number = isinstance(present, int | float)
    return typed == "null" or is_number == (number(typed) is not None)


def _misspelt_key_of_other_options(
    key: str, value: str | None, places: Sequence[str]
) -> Problem | None:
    """A key `GROUP.NAME` that is similar to one of options of the group that are not chosen."""
    group, _, name = key.partition(".")
    if group not in COMPONENTS or not name or "." in name:
        return None
    keys = {k for path in options(group, places).values() for k in _option_keys(path, group)}
    names = {k for k in keys if "." not in k}
    guess = closest(name, names, MISSPELT)
    if guess is None:
        return None
    found = ", ".join(_options_with(group, guess, places))
    message = (
        f"there is no such key. Did you mean {group}.{guess}? {guess} is a key of {group}={found}"
    )
    return Problem(key, message)


def _options_with(group: str, name: str, places: Sequence[str]) -> list[str]:
    """The options of a group that have a key."""
    files = options(group, places).items()
    return [option for option, path in files if name in _option_keys(path, group)]


def _option_keys(path: Path, group: str) -> set[str]:
    """The keys of an option: the parameters of its target, read from source, and keys below them
    that its file has.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        node = content.get(group, content)
        below = {key for key, _ in leaves(node) if "." in key}
        return {*read_signature(node["_target_"]).parameters, *below}
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError):
        return set()


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
    return [
        _with_first_plan(problem, overrides, rest, has_plan)
        if isinstance(problem, UnknownKey) and problem.candidates
        else problem
        for problem in problems
    ]


def _with_first_plan(
    problem: UnknownKey,
    typed: Sequence[str],
    rest: Sequence[str],
    has_plan: Callable[[Sequence[str]], bool | None],
) -> UnknownKey:
    """A problem with its first candidate that has a plan beside `rest` and changes none of it."""
    chosen = {override_key(word) for word in rest}
    composed: list[Words] = []
    for candidate in problem.candidates:
        words = filled(candidate, typed)
        if words is None or any(override_key(w) in chosen and w not in rest for w in words):
            continue
        is_plan = has_plan([*rest, *(word for word in words if word not in rest)])
        if is_plan:
            return replace(problem, instead=words)
        composed += [words] if is_plan is not None else []
    return replace(problem, instead=composed[0] if composed else None)
