"""What was typed: each override checked by itself, so that each mistake is named, then composed."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from rlfactory._hydra import Composed, Composition, CompositionError, Override, options, parse
from rlfactory.parted import PARTED, loosened, with_parts
from rlfactory.plan import Plan, make_plan
from rlfactory.problems import PlanError, Problem, closest, key_of, unknown_key
from rlfactory.settings import COMPONENTS, GROUPS

SEARCHPATH = "hydra.searchpath"
LONGEST = 2000
"""Characters of an override: Hydra takes seconds to read a list of some thousand values."""


def prepare(words: Sequence[str]) -> list[str]:
    """What Hydra's composing can't read, as overrides that it can: `-cd`, `~` and no experiment."""
    kept, folders = [], []
    rest = [_expanded(word) for word in words if word != "experiment=null"]
    while rest:
        word = rest.pop(0)
        flag, _, value = word.partition("=")
        if flag not in ("-cd", "--config-dir"):
            kept.append(word)
            continue
        if not value and not rest:
            raise PlanError([Problem(flag, "names no folder", f"rlfactory {flag} FOLDER")])
        folder = Path(value or rest.pop(0)).expanduser().resolve()
        if not os.path.isdir(folder):
            raise PlanError([Problem(flag, f"there is no folder {folder}")])
        folders.append(f"file://{folder}")
    if not folders:
        return kept
    places = [*searched(kept), *folders]
    quoted = ",".join("'" + place.replace("'", "\\'") + "'" for place in places)
    return [*(w for w in kept if key_of(w) != SEARCHPATH), f"{SEARCHPATH}=[{quoted}]"]


def _expanded(word: str) -> str:
    return re.sub(r"^([\w.+]+=)~(?=/|$)", rf"\1{Path.home()}", word)


def searched(overrides: Sequence[str]) -> list[str]:
    """The places that `hydra.searchpath` adds, given as a list or as one."""
    typed = [o for o in overrides if key_of(o) == SEARCHPATH]
    try:
        value = parse(typed)[-1].value() if typed else []
    except CompositionError:
        return []
    return [str(v) for v in value] if isinstance(value, list) else [str(value)]


def compose_request(overrides: Sequence[str]) -> Composed:
    """The configuration that was asked for, without the overrides that make no sense.

    The result carries a Problem for each of those; a PlanError says that nothing can be composed.
    """
    problems: list[Problem] = []
    parsed = [o for word in overrides if (o := read(word, problems)) is not None]
    places = searched(overrides)
    wrong = [p for o in parsed for p in _override_problems(o, places, overrides)]
    problems += wrong
    kept = [o for o in parsed if not any(p.key == o.key_or_group for p in wrong)]
    if any(p.key in GROUPS for p in wrong):
        # which keys a component has depends on the choice that was not understood
        kept = [o for o in kept if o.key_or_group.split(".")[0] not in COMPONENTS]
    chosen = [o for o in kept if _chooses(o, places)]
    composition = _composed(chosen, places, problems)
    mistakes = _key_problems([o for o in kept if o not in chosen], composition.values)
    problems += mistakes
    kept = [o for o in kept if o.key_or_group not in {p.key for p in mistakes}]
    try:
        composed = composition.changed([o for o in kept if o not in chosen])
    except CompositionError as error:
        raise PlanError([*problems, _explained(error)]) from error
    composed = replace(composed, problems=problems, overrides=_lines(kept))
    return with_parts(with_own_targets(composed, _lines(kept)), places)


def planned(*words: str) -> Plan:
    """The plan of what is typed after `rlfactory`, as scripts and notebooks ask for it."""
    composed = compose_request(words)
    return make_plan(composed.values, composed.choices, composed.problems)


SHARED = frozenset({"optimizer.lr"})
"""Keys that stay when another `_target_` is typed: every optimiser has them."""


def with_own_targets(composed: Composed, overrides: Sequence[str]) -> Composed:
    """A component whose `_target_` was typed starts afresh: it has the keys that were typed."""
    values, choices = dict(composed.values), dict(composed.choices)
    typed = {key_of(o) for o in overrides}
    kept = typed | SHARED
    for group in COMPONENTS:
        node = values.get(group)
        if f"{group}._target_" in typed and isinstance(node, dict) and "_target_" in node:
            own = {k: v for k, v in node.items() if f"{group}.{k}" in kept}
            values[group], choices[group] = own, str(own["_target_"]).rpartition(".")[2]
    return replace(composed, values=values, choices=choices)


def amend(frozen: Mapping[str, Any], overrides: Sequence[str]) -> Composed:
    """A frozen configuration with overrides on top; a group choice replaces that group whole."""
    values = {key: value for key, value in frozen.items() if key != "choices"}
    choices, problems = dict(frozen.get("choices", {})), []  # type: dict[str, str], list[Problem]
    parsed = [o for word in overrides if (o := read(word, problems)) is not None]
    places_typed = [o for o in overrides if key_of(o) == SEARCHPATH]
    for override in parsed:
        if (group := override.key_or_group) in GROUPS:
            composed = compose_request([*places_typed, *_lines([override])])
            problems += composed.problems
            values[group], choices[group] = composed.values[group], composed.choices[group]
    for override in parsed:
        key = override.key_or_group
        if key in GROUPS or key == SEARCHPATH:
            continue
        if key.removesuffix(".of") in PARTED:
            values = _without_parts(values, key.removesuffix(".of"), override.value())
        if (mistake := _misspelt(override, values)) is not None:
            problems.append(mistake)
        else:
            values = _with(values, key.split("."), override.value())
    return with_parts(Composed(values, choices, problems), searched(places_typed))


def _without_parts(values: dict[str, Any], key: str, of: object) -> dict[str, Any]:
    """The values without the parts of `key` that its new names leave out."""
    node, names = values.get(key), of if isinstance(of, list) else []
    if not isinstance(node, Mapping) or "parts" not in node:
        return values
    kept = {name: part for name, part in node["parts"].items() if name in names}
    return {**values, key: {**node, "parts": kept}}


def _with(values: dict[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    inner = value if len(path) == 1 else _with(values.get(path[0], {}), path[1:], value)
    return {**values, path[0]: inner}


def read(word: str, problems: list[Problem]) -> Override | None:
    """A word as an override, or None and a problem more."""
    if not key_of(word):
        problems.append(Problem(word, "names no key; allowed is KEY=VALUE"))
        return None
    if len(word) > LONGEST:
        message = f"{len(word):,} characters; allowed are {LONGEST:,}, and -cd FOLDER reads files"
        problems.append(Problem(key_of(word)[:LONGEST], message))
        return None
    try:
        return parse([loosened(word)])[0]
    except CompositionError as error:
        reason = str(error).splitlines()[0].removesuffix(word).rstrip(": ")
        problems.append(Problem(word, f"can't be read ({reason}); allowed is KEY=VALUE"))
        return None


def _lines(parsed: Sequence[Override]) -> list[str]:
    return [o.input_line for o in parsed if o.input_line]


def _override_problems(
    override: Override, places: Sequence[str], overrides: Sequence[str]
) -> Iterator[Problem]:
    key = override.key_or_group
    if override.is_sweep_override():
        whole = f"rlfactory -m {shlex.join(overrides)}"
        yield Problem(key, "has several values, and each is a run of its own", whole)
    elif key in GROUPS and not override.is_delete():
        yield from _choice_problems(override, places)


def _choice_problems(override: Override, places: Sequence[str]) -> Iterator[Problem]:
    group, option = override.key_or_group, str(override.value())
    known = options(group, places)
    if override.package is not None:
        yield Problem(group, "can't be moved elsewhere with @", f"{group}={option}")
    elif override.is_add() and group != "experiment":
        yield Problem(group, "is chosen already, so + can't add it", f"{group}={option}")
    elif override.value() is None:
        yield Problem(group, "needs an option", f"rlfactory list {group}")
    elif option not in known:
        guess = closest(option, known)
        meant = f". Did you mean {guess}?" if guess else ""
        message = f"there is no option {option}; known are {', '.join(sorted(known))}{meant}"
        yield Problem(group, message, f"{group}={guess}" if guess else f"rlfactory list {group}")


def _unread(override: Override, places: Sequence[str]) -> Problem | None:
    """What is wrong with the file of the option that an override chooses, as a file."""
    group = override.key_or_group
    path = options(group, places).get(str(override.value())) if group in GROUPS else None
    try:
        content = None if path is None else yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        return Problem(group, f"{path} can't be read: {' '.join(str(error).split())}")
    if content is None or isinstance(content, dict):
        return None
    return Problem(group, f"{path} holds no mapping of keys to values")


def _chooses(override: Override, places: Sequence[str]) -> bool:
    """Does an override say which files are merged, and not what a value is?"""
    key = override.key_or_group
    if key in GROUPS or key == SEARCHPATH or "/" in key or override.package is not None:
        return True
    # a group of one's own, which only its folder tells from a new key
    return override.is_add() and "." not in key and bool(options(key, places))


def _composed(
    chosen: Sequence[Override], places: Sequence[str], problems: Sequence[Problem]
) -> Composition:
    try:
        return Composition(_lines(chosen))
    except CompositionError as error:
        unread = [p for o in chosen if (p := _unread(o, places)) is not None]
        raise PlanError([*problems, *(unread or [_explained(error)])]) from error


def _key_problems(others: Sequence[Override], values: Mapping[str, Any]) -> list[Problem]:
    """Overrides of keys that do not exist; those behind `+` are checked with the whole."""
    mistakes = [_misspelt(override, values) for override in others]
    return [mistake for mistake in mistakes if mistake is not None]


def _misspelt(override: Override, values: Mapping[str, Any]) -> Problem | None:
    """What is wrong with an override's key, given the configuration that it should change."""
    key, node = override.key_or_group, values  # type: str, Any
    parts = key.split(".")
    if parts[0] == "hydra" or override.is_force_add():
        return None
    for depth, part in enumerate(parts):
        if isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        elif isinstance(node, Mapping) and part in node:
            node = node[part]
        elif override.is_add() or (isinstance(node, str) and "${" in node):
            return None
        else:
            known = [*node, *(GROUPS if depth == 0 else [])] if isinstance(node, Mapping) else []
            return unknown_key(key, known, ".".join(parts[: depth + 1]))
    if override.is_add() and not isinstance(override.value(), list | dict):
        return Problem(key, "exists already, so + can't add it", f"{key}={override.value()}")
    return None


def _explained(error: Exception) -> Problem:
    """An error of composing in one line."""
    parts = str(getattr(error, "full_key", None) or "").split(".")
    key = ".".join(parts[1:] if len(parts) > 1 and parts[0] == parts[1] else parts)
    text = str(error) if "line" in str(error) else str(error).split("\n    full_key")[0]
    return Problem(key or "configuration", " ".join(text.split()))
