"""Types of the rules, and functions that several rules use."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlfactory.config.problems import Problem
from rlfactory.config.words import typed_value
from rlfactory.utils.dotted_keys import value_at

Config = Mapping[str, Any]
Traits = Mapping[str, Mapping[str, Any]]
Rule = Callable[[Config, Traits], Iterator[Problem]]
Component = tuple[str, Config, Mapping[str, Any]]
"""The key, configuration and traits of a component."""


def only(config: Config, allowed: Mapping[str, Any], reason: str) -> Iterator[Problem]:
    """A problem for each key that is there and has another value than the one that is allowed, with
    a clause that says why.
    """
    for key, value in allowed.items():
        given, shown = value_at(config, key, value), typed_value(value)
        if given != value:
            message = f"is {typed_value(given)}, and {reason}; allowed is {shown}"
            yield Problem(key, message, f"{key}={shown}")


def penalties(config: Config, traits: Traits) -> Iterator[Component]:
    """The regularizer or, for a sum, each of its terms."""
    if traits["regularizer"].get("requires") == "terms":
        yield from _parts(config, traits, "regularizer.terms")
    else:
        yield "regularizer", config["regularizer"], traits["regularizer"]


def rewards_of(config: Config, traits: Traits) -> Iterator[Component]:
    """The reward or each part of a combined one; then those that only evaluations compute."""
    if traits["reward"].get("made_of") == "parts":
        yield from _parts(config, traits, "reward.parts")
    else:
        yield "reward", config["reward"], traits["reward"]
    yield from _parts(config, traits, "eval_rewards.parts")


def own_rewards(config: Config, traits: Traits) -> Iterator[Component]:
    """Those of `rewards_of` that score the run's own prompts, not prompt sets alone."""
    for key, node, own in rewards_of(config, traits):
        group, _, name = key.partition(".parts.")
        if group != "eval_rewards" or name in config[group]["of"]:
            yield key, node, own


def _parts(config: Config, traits: Traits, key: str) -> Iterator[Component]:
    parts = value_at(config, key)
    for name, part in parts.items() if isinstance(parts, Mapping) else ():
        yield f"{key}.{name}", part, traits.get(f"{key}.{name}", {})


def unread_groups(traits: Traits) -> set[str]:
    """The groups whose choices have no effect.

    Language models have no noise levels, and their algorithms have their own advantages. Algorithms
    on sampling steps learn at the times of these steps; those on a reward's gradient need no
    advantages.
    """
    image_groups = {"schedule", "window", "advantage"}
    hidden = image_groups if traits["model"].get("process") == "tokens" else set()
    requires = traits["algo"].get("requires")
    if requires == "states":
        return hidden | {"times", "window", "advantage"}
    return hidden | ({"times"} if requires != "forward_process" else {"window"})


def is_algorithm_mismatched(traits: Traits) -> bool:
    """Whether the algorithm is for tokens and the model for images, or the reverse."""
    if "algo" not in traits:  # its own problem is reported instead
        return False
    wants_tokens = traits["algo"].get("requires") == "tokens"
    return wants_tokens != (traits["model"].get("process") == "tokens")


def stochastic_steps(config: Config) -> list[int]:
    """The steps that are trained: a window's, in its first position if it moves, and splits."""
    window, steps = config["window"], int(config["schedule"]["steps"])
    chosen = window.get("steps")
    if chosen is None:
        low = int(window.get("low", 0))
        chosen = range(low, low + int(window.get("size", steps - window.get("skip_last", 0))))
    splits = config["tree"]["splits"] if config["branch_at"] == "tree" else []
    return sorted({*chosen, *splits})
