"""Composite components: each name in a list, as `reward.of=[...]`, becomes a part with options."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from rlfactory.config._hydra import CompositionError
from rlfactory.config.composition import ComposedConfig, Composition, resolved
from rlfactory.config.options import options
from rlfactory.config.problems import PlanError, Problem, closest
from rlfactory.config.schema.signature import trait
from rlfactory.utils.dotted_keys import value_at

COMPOSITE_KEYS = {
    **{"reward": "reward", "eval_rewards": "reward"},
    **{"eval_sets": "prompts", "logger": "logger"},
}
"""Keys that may have `of` (names) and `parts` (options for each name),
with the group that the names are options of."""

COMBINED = {"reward": "combine", "logger": "several"}
"""Groups of which several options can be used at once, and the option that combines them."""


def expand_parts(composed: ComposedConfig, places: Sequence[str]) -> ComposedConfig:
    """Add a part for each name in `of`: the values of that option, overridden by those given.

    A part with its own `_target_` stays as given. `places` are searched for options too.
    """
    values, problems = dict(composed.values), list(composed.problems)
    media = _media(values.get("model"))
    for key, group in COMPOSITE_KEYS.items():
        node = values.get(key)
        if not isinstance(node, Mapping) or not _is_composite(node):
            continue
        known = options(group, places)
        parts: dict[str, Any] = {}
        # the options of rewards that prompt sets name are parts of `eval_rewards` too
        lists = _lists_of_sets(values).values() if key == "eval_rewards" else ()
        of_sets = [name for names in lists for name in names if _is_name(name)]
        wanted = [*dict.fromkeys([*node["of"], *of_sets])]
        functions = {part_name(n): n for n in wanted if group == "reward" and is_function(n)}
        if functions:
            wanted = [part_name(name) for name in wanted]
            node = {**node, "of": [part_name(name) for name in node["of"]]}
        for name in wanted:
            given = node["parts"].get(name, {})
            if name in functions and media in FUNCTIONS:
                given = {**function_node(functions[name], values["model"]), **given}
            if not isinstance(given, Mapping):
                problems.append(Problem(f"{key}.parts.{name}", f"is {given!r}; allowed is options"))
            elif "_target_" in given:
                parts[name] = given
            elif name in known:
                own = dict(_option(group, name, tuple(places)))
                if key == "eval_sets" and "path" in own:  # a share is held out of training data
                    own["held_out_share"] = 0.0
                parts[name] = {**own, **given}
            else:
                hint = f"{key}.parts.{name}._target_=CLASS makes a part of your own"
                if group == "reward" and media in FUNCTIONS:
                    hint = f"a function of your own is FILE.py:{name}"
                place, of = _naming(key, name, values)
                problems.append(_unknown(place, group, name, [*known], of, f"; {hint}"))
        brought = value_at(composed.defaults, f"{key}.parts") or {}
        for name in (n for n in node["parts"] if n not in wanted and n not in brought):
            message = f"has options, but {key}.of names no {name}"
            fix = f"{key}.of=[{','.join([*node['of'], name])}]"
            problems.append(Problem(f"{key}.parts.{name}", message, fix))
        values[key] = {**node, "parts": parts}
    return replace(composed, values=values, problems=problems)


def is_function(name: object) -> bool:
    """Whether a reward's name is a function of the user's own: `FILE.py:NAME`, `MODULE:NAME`."""
    return isinstance(name, str) and re.fullmatch(r".*[^:]:\w+", name) is not None


def part_name(name: str) -> str:
    """The name of a part: of a function the function's."""
    return name.rpartition(":")[2] if is_function(name) else name


def function_node(function: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """The reward that calls a function of what a model generates."""
    return {"_target_": FUNCTIONS[_media(model)], "function": function}


def spelled_out(words: Sequence[str]) -> list[str]:
    """The words with short forms of rewards and loggers in full.

    `reward=FILE.py:NAME` is `reward=function reward.function=FILE.py:NAME`; `reward=[a,b]` is
    `reward=combine reward.of=[a,b]`; `reward.weights=[1,0.1]` gives the parts their weights in
    their order. A part may be a function too. `logger=[a,b]` is `logger=several logger.of=[a,b]`.
    """
    spelled, names = list[str](), list[str]()
    for word in words:
        key, _, value = word.partition("=")
        if key == "reward" and (is_function(value) or value.endswith(".py")):
            spelled += ["reward=function", f"reward.function={value}"]
        elif key in COMBINED and value.startswith("["):
            spelled += [f"{key}={COMBINED[key]}", f"{key}.of={value}"]
        else:
            spelled.append(word)
        if spelled[-1].startswith("reward.of=["):
            names = _listed(spelled[-1])
    chosen = {word.partition("=")[0] for word in spelled}
    if any(map(is_function, names)) and "reward" not in chosen:
        spelled.insert(0, "reward=combine")
    weights = [word for word in spelled if word.startswith("reward.weights=[")]
    if weights:
        count = len(_listed(weights[-1]))
        if count != len(names):
            message = f"are {count} numbers for {len(names)} rewards"
            hint = "a part's is reward.weights.NAME"
            raise PlanError([Problem("reward.weights", f"{message}; {hint}")])
        pairs = zip(map(part_name, names), _listed(weights[-1]), strict=True)
        spelled = [word for word in spelled if word not in weights]
        spelled += [f"reward.weights.{name}={weight}" for name, weight in pairs]
    return spelled


def _listed(word: str) -> list[str]:
    """The elements of a typed list of names or numbers."""
    inner = word.partition("=")[2].strip("[]")
    return [name.strip(" '\"") for name in inner.split(",") if name.strip()]


def _lists_of_sets(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The list of rewards of each prompt set that has one."""
    named = value_at(values, "eval_sets.rewards")
    lists = named.items() if isinstance(named, Mapping) else ()
    return {name: rewards for name, rewards in lists if isinstance(rewards, list)}


def _naming(key: str, name: str, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The key that names a part, and the names there."""
    own: list[Any] = values[key]["of"]
    lists = {} if name in own else _lists_of_sets(values)
    of_sets = ((f"eval_sets.rewards.{s}", names) for s, names in lists.items() if name in names)
    return next(of_sets, (f"{key}.of", own))


def _is_composite(node: Mapping[str, Any]) -> bool:
    """Whether a node has names and parts of the right types; `make_plan` reports other mistakes."""
    of, parts = node.get("of"), node.get("parts")
    return isinstance(of, list) and isinstance(parts, Mapping) and all(map(_is_name, of))


def _is_name(name: object) -> bool:
    return isinstance(name, str)


def option_values(group: str, name: str) -> Mapping[str, Any]:
    """The values of a group's option; PlanError if the group has no such option."""
    if name in (known := options(group)):
        return _option(group, name, ())
    raise PlanError([_unknown(f"{group}.of", group, name, [*known], [name])])


@cache
def _option(group: str, name: str, places: tuple[str, ...]) -> Mapping[str, Any]:
    """The values of an option of a group."""
    try:
        found = Composition.of([f"{group}={name}"], places)
        node = resolved(found.values, found.choices)[group]
    except CompositionError:
        return {}  # the plan then reports the missing _target_
    return node if isinstance(node, Mapping) else {}


FEW = 20
"""How many options a message lists; of more, `rlfactory list GROUP` is suggested."""


def _unknown(
    place: str, group: str, name: str, known: Sequence[str], of: Sequence[str], own: str = ""
) -> Problem:
    guess = closest(name, known, 0.75)  # a name of the user's own is like some other by chance
    listed = "" if len(known) > FEW else f"; known are {', '.join(sorted(known))}"
    message = f"there is no {group} {name}{listed}"
    if guess is None:
        return Problem(place, f"{message}{own}", f"rlfactory list {group}")
    corrected = ",".join(guess if other == name else other for other in of)
    return Problem(place, f"{message}. Did you mean {guess}?", f"{place}=[{corrected}]")


FUNCTIONS = {
    "texts": "rlfactory.reward.function.Function",
    "images": "rlfactory.reward.image_function.ImageFunction",
    "videos": "rlfactory.reward.image_function.VideoFunction",
}
"""The rewards that call a function, by what a model generates."""


def _media(model: object) -> str:
    """The medium that a model generates; empty where its class can't be read."""
    return str(trait(model, "media", ""))
