"""What was typed: the overrides checked one by one, so that each mistake is named, and then
composed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlfactory._hydra import Composed, CompositionError, Override, compose_config, options, parse
from rlfactory.problems import PlanError, Problem, closest, unknown_key
from rlfactory.settings import GROUPS


def compose_request(overrides: Sequence[str], command: str = "rlfactory") -> Composed:
    """The configuration that was asked for; a PlanError names every override that makes no
    sense.
    """
    try:
        parsed = parse(overrides)
    except CompositionError as error:
        raise PlanError([Problem("overrides", str(error).splitlines()[0])]) from error
    searched = [o for o in overrides if o.startswith("hydra.searchpath")]
    choosing = [o for o in parsed if o.key_or_group in GROUPS]
    problems = [p for o in choosing for p in _choice_problems(o, searched, command)]
    try:
        if not problems:
            chosen = [o.input_line for o in choosing if o.input_line]
            values = compose_config([*searched, *chosen]).values
            problems += _key_problems(parsed, values, command)
        if not problems:
            return compose_config(overrides)
    except CompositionError as error:
        text = " ".join(str(error).split())
        raise PlanError([Problem("configuration", text)]) from error
    raise PlanError(problems)


def amend(frozen: Mapping[str, Any], overrides: Sequence[str]) -> Composed:
    """A frozen configuration with overrides on top; a group choice replaces that group whole."""
    values = {key: value for key, value in frozen.items() if key != "choices"}
    choices = dict(frozen["choices"])
    problems: list[Problem] = []
    for override in parse(overrides):
        key, value = override.key_or_group, override.value()
        if key in GROUPS:
            composed = compose_request([override.input_line or ""], "rlfactory evaluate")
            values[key], choices[key] = composed.values[key], str(value)
            continue
        *path, name = key.split(".")
        node: Any = values
        for part in path:
            node = node.get(part) if isinstance(node, dict) else None
        if not isinstance(node, dict) or name not in node:
            problems.append(_misspelt(key, node, values, "rlfactory evaluate"))
        else:
            node[name] = value
    if problems:
        raise PlanError(problems)
    return Composed(values, choices)


def _choice_problems(
    override: Override, searched: Sequence[str], command: str
) -> Iterator[Problem]:
    group, option = override.key_or_group, override.value()
    known = options(group, searched)
    if option is None or option in known:
        return
    guess = closest(str(option), known)
    meant = f" Did you mean {guess}?" if guess else ""
    message = f"there is no option {option}; known are {', '.join(sorted(known))}.{meant}"
    yield Problem(
        group, message, f"{command} {group}={guess}" if guess else f"{command} list {group}"
    )


def _key_problems(
    parsed: Sequence[Override], values: dict[str, Any], command: str
) -> Iterator[Problem]:
    """Plain overrides of keys that do not exist; those behind `+` are checked with the whole."""
    for override in parsed:
        key = override.key_or_group
        if key in GROUPS or key.startswith("hydra") or override.is_add() or override.is_delete():
            continue
        node: Any = values
        for part in key.split("."):
            if not isinstance(node, dict) or part not in node:
                yield _misspelt(key, node, values, command)
                break
            node = node[part]


def _misspelt(key: str, node: Any, values: dict[str, Any], command: str) -> Problem:
    if "." not in key:
        return unknown_key(key, [*values, *GROUPS], command)
    return unknown_key(key, node if isinstance(node, dict) else {}, command)
