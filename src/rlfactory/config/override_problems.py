"""Problems of single overrides: options and keys that there are none of.

A key may be another library's name, one of another place or option, or a misspelling. It is looked
up once: in the table of other libraries' names, then among all keys that there are, those of the
configuration and of the options that are not chosen.
"""

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config._hydra import Override
from rlfactory.config.composites import COMBINED, is_function
from rlfactory.config.named_models import is_hub_id
from rlfactory.config.options import GLOBAL, is_global, options
from rlfactory.config.peers.names import (
    OTHER,
    Name,
    Words,
    filled,
    find,
    nearest,
    option_words,
    our_option,
    tables,
)
from rlfactory.config.peers.values import candidates, prompts
from rlfactory.config.problems import (
    MISSPELT,
    Problem,
    closest,
    no_such_key,
    override_key,
    unknown_key,
)
from rlfactory.config.schema.root import COMPONENTS, GROUPS
from rlfactory.config.schema.signature import parameters_of
from rlfactory.utils.data_files import load_yaml
from rlfactory.utils.dotted_keys import last_part, leaves

Config = Mapping[str, Any]
SIZES = ("iterations", "prompts_per_iteration", "group_size", "epochs", "updates_per_iteration")
"""Keys by which counts of other libraries are converted."""


def override_problems(
    override: Override, places: Sequence[str], overrides: Sequence[str]
) -> Iterator[Problem]:
    key = override.key_or_group
    if override.is_sweep_override():
        multirun = f"rlfactory -m {shlex.join(overrides)}"
        message = "has several values, and each is a run of its own"
        values = (override.input_line or "").partition("=")[2].split(",")
        together = words_together(key, values, options(key, places) if key in GROUPS else ())
        if together := together or _as_list(key, values):
            message += f" (type {multirun}); all in one run is {' '.join(together)}"
        yield Problem(key, message, multirun, together)
    elif key in GROUPS and not override.is_delete():
        yield from _choice_problems(override, places)


def _as_list(key: str, values: Sequence[str]) -> Words | None:
    """The word to type for several values of a name that takes a list here, ours or another's."""
    for row in (row for rows in tables().values() for row in rows if row.by == "listed"):
        if key in (row.name, row.words.partition("=")[0]) or f" {key}=" in row.words:
            whole = f"[{','.join(values)}]"
            return (f"{key}={whole}",) if key != row.name else candidates(row, whole, {})[0]
    return None


def _choice_problems(override: Override, places: Sequence[str]) -> Iterator[Problem]:
    group, option = override.key_or_group, str(override.value())
    known = options(group, places)
    if override.package is not None:
        yield Problem(group, "can't be moved elsewhere with @", f"{group}={option}")
    elif override.is_add():
        yield Problem(group, "is chosen already, so + can't add it", f"{group}={option}")
    elif override.value() is None or not option.strip():
        yield Problem(group, "needs an option", f"rlfactory list {group}")
    elif option not in known:
        yield explain_option(group, option, known)
    elif not is_global(file := known[option]) and (
        # Hydra reads the line at the beginning alone
        group == "experiment" or GLOBAL in file.read_text("utf-8", "replace").replace(" ", "")
    ):
        message = f"{file} needs the first line # @package _global_: its keys are the root's"
        yield Problem(group, message)


def key_problems(
    others: Sequence[Override], values: Config, places: Sequence[str]
) -> list[Problem]:
    """Problems of overrides of keys that do not exist; `+` keys are checked by `make_plan`."""
    sizes = {o.key_or_group: o.value() for o in others if o.key_or_group in SIZES}
    values = {**values, **{key: value for key, value in sizes.items() if isinstance(value, int)}}
    return [p for o in others if (p := check_key(o, values, places)) is not None]


def check_key(override: Override, values: Config, places: Sequence[str]) -> Problem | None:
    """The problem of an override's key in the configuration that it changes; None if it exists."""
    key, node = override.key_or_group, values  # type: str, Any
    parts = key.split(".")
    if parts[0] == "hydra" or override.is_force_add():
        return None
    line = override.input_line or ""
    typed = line.partition("=")[2] if "=" in line else None  # for `~KEY`
    for depth, part in enumerate(parts):
        if isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        elif isinstance(node, Mapping) and part in node:
            node = node[part]
        elif (override.is_add() and depth > 0) or (isinstance(node, str) and "${" in node):
            return None
        else:
            known = dict(node) if isinstance(node, Mapping) else {}
            known |= dict.fromkeys(GROUPS) if depth == 0 else {}
            at = ".".join(parts[: depth + 1])
            return explain_unknown(key, typed, at, known, values, places)
    if override.is_add() and not isinstance(override.value(), list | dict):
        return Problem(key, "exists already, so + can't add it", f"{key}={override.value()}")
    if isinstance(node, Mapping) and typed and not isinstance(override.value(), dict | None):
        return peer_problem(key, typed, values)
    return None


def explain_option(group: str, option: str, known: Collection[str]) -> Problem:
    """The problem of an option that does not exist, with what may be meant."""
    candidates = _meant(group, option, known)
    if candidates:
        message = f"there is no option {option}; it is {' '.join(candidates[0])} here"
        return Problem(group, message, instead=candidates[0], candidates=tuple(candidates))
    if group == "prompts" and " " in option:
        message = f"{option!r} is a prompt; allowed are an option and, in Python, a list of prompts"
        return Problem(group, f"{message}; prompts=file reads them from prompts.path")
    guess = closest(option, known, MISSPELT)
    meant = f". Did you mean {guess}?" if guess else ""
    some = f"; known are {', '.join(sorted(known))}" if len(known) <= FEW else ""
    message = f"there is no option {option}{some}{meant}"
    return Problem(group, message, f"{group}={guess}" if guess else f"rlfactory list {group}")


def words_together(group: str, names: Sequence[str], known: Collection[str]) -> Words | None:
    """The words to type for several options of a group in one run; None where that can't be."""
    combined = COMBINED.get(group)
    if combined is None or not {*names} <= {*known} or len(names) < 2:
        return None
    return (f"{group}={combined}", f"{group}.of=[{','.join(names)}]")


def _meant(group: str, option: str, known: Collection[str]) -> list[Words]:
    """The words to type instead of an option, most fitting first; empty where nothing is known."""
    if together := words_together(group, option.split("+"), known):
        return [together]
    if our_option(group, option) in known:
        return [option_words(group, option)]
    if group == "prompts" and (is_hub_id(option) or "." in option):
        return prompts(option, {})
    if group == "reward" and is_function(function := option.replace("::", ":")):
        return [(f"reward={function}",)]  # as pytest writes it
    return []


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
    # a name with a meaning of its own in this kind of configuration, before keys that are alike
    if value is not None and (row := find(key, config)) and row.name == key and row.when:
        return _peer_problem_of(row, key, value, config)
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
    return None if row is None else _peer_problem_of(row, key, value, config)


def _peer_problem_of(row: Name, key: str, value: str, config: Config) -> Problem:
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
    """A name of other libraries, typed below no other group than that of what it stands for."""
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
    """The keys of an option: its target's parameters, read from source, and those in its file."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
        node = content.get(group, content)
    except (OSError, ValueError, yaml.YAMLError, AttributeError):
        return frozenset()
    parameters = parameters_of(node)
    below = {key for key, _ in leaves(node) if "." in key}
    return frozenset({*parameters, *below} if parameters else ())


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
