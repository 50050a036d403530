"""Problems of single overrides: options and keys that there are none of."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config._hydra import Override
from rlfactory.config.composites import COMBINED, is_function
from rlfactory.config.named_models import is_hub_id
from rlfactory.config.options import GLOBAL, is_global, options
from rlfactory.config.peers.names import Words, option_words, our_option, tables
from rlfactory.config.peers.unknown_keys import FEW, explain_unknown, peer_problem
from rlfactory.config.peers.values import candidates, prompts
from rlfactory.config.problems import MISSPELT, Problem, closest
from rlfactory.config.schema.root import GROUPS

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
        together = together or _as_list(key, values)
        if together:
            message += f" (type {multirun}); all in one run is {' '.join(together)}"
        yield Problem(key, message, multirun, together)
    elif key in GROUPS and not override.is_delete():
        yield from _choice_problems(override, places)


def _as_list(key: str, values: Sequence[str]) -> Words | None:
    """What to type for several values of a name that takes a list here, ours or another's."""
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
    elif not is_global(file := known[option]) and (group == "experiment" or _says_global(file)):
        message = f"{file} needs the first line # @package _global_: its keys are the root's"
        yield Problem(group, message)


def _says_global(file: Path) -> bool:
    """Whether a file has the line, which Hydra reads at its beginning alone, anywhere."""
    return GLOBAL in file.read_text(encoding="utf-8", errors="replace").replace(" ", "")


def key_problems(
    others: Sequence[Override], values: Mapping[str, Any], places: Sequence[str]
) -> list[Problem]:
    """Problems of overrides of keys that do not exist; `+` keys are checked by `make_plan`."""
    sizes = {o.key_or_group: o.value() for o in others if o.key_or_group in SIZES}
    values = {**values, **{key: value for key, value in sizes.items() if isinstance(value, int)}}
    return [p for o in others if (p := check_key(o, values, places)) is not None]


def check_key(
    override: Override, values: Mapping[str, Any], places: Sequence[str]
) -> Problem | None:
    """The problem of an override's key in the configuration that it changes; None if it exists."""
    key, node = override.key_or_group, values  # type: str, Any
    parts = key.split(".")
    if parts[0] == "hydra" or override.is_force_add():
        return None
    typed = _typed_value(override)
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


def _typed_value(override: Override) -> str | None:
    """The value of an override as typed; None for `~KEY`."""
    line = override.input_line or ""
    return line.partition("=")[2] if "=" in line else None


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
    """What to type for several options of a group in one run; None where that can't be."""
    combined = COMBINED.get(group)
    if combined is None or not {*names} <= {*known} or len(names) < 2:
        return None
    return (f"{group}={combined}", f"{group}.of=[{','.join(names)}]")


def _meant(group: str, option: str, known: Collection[str]) -> list[Words]:
    """What to type instead of an option, most fitting first; empty where nothing is known."""
    if together := words_together(group, option.split("+"), known):
        return [together]
    if our_option(group, option) in known:
        return [option_words(group, option)]
    if group == "prompts" and (is_hub_id(option) or "." in option):
        return prompts(option, {})
    if group == "reward" and is_function(function := option.replace("::", ":")):
        return [(f"reward={function}",)]  # as pytest writes it
    return []
