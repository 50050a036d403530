"""What rules are made of, and what more than one of them asks."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlfactory.problems import Problem

Config = Mapping[str, Any]
Traits = Mapping[str, Mapping[str, Any]]
Rule = Callable[[Config, Traits], Iterator[Problem]]


def penalties(config: Config, traits: Traits) -> Iterator[tuple[str, Config, Mapping[str, Any]]]:
    """Key, configuration and traits of the regularizer or, of a sum, of each of its terms."""
    node, ours = config["regularizer"], traits["regularizer"]
    if ours.get("needs") != "terms":
        yield "regularizer", node, ours
        return
    terms = node.get("terms")
    for name, term in terms.items() if isinstance(terms, Mapping) else ():
        key = f"regularizer.terms.{name}"
        yield key, term, traits.get(key, {})


def judges(config: Config, traits: Traits) -> Iterator[tuple[str, Config, Mapping[str, Any]]]:
    """Key, configuration and traits of the reward or, where it is combined, of each of its parts;
    then of those that only evaluations ask.
    """
    parts = [*_parts(config, traits, "eval_rewards")]
    if traits["reward"].get("made_of") == "parts":
        parts = [*_parts(config, traits, "reward"), *parts]
    else:
        yield "reward", config["reward"], traits["reward"]
    yield from parts


def _parts(
    config: Config, traits: Traits, key: str
) -> Iterator[tuple[str, Config, Mapping[str, Any]]]:
    parts = config[key].get("parts")
    for name, part in parts.items() if isinstance(parts, Mapping) else ():
        yield f"{key}.parts.{name}", part, traits.get(f"{key}.parts.{name}", {})


def steps_trained(config: Config) -> int:
    """How many steps a window has."""
    window, steps = config["window"], int(config["schedule"]["steps"])
    if "steps" in window:
        return len(set(window["steps"]))
    return int(window.get("size", steps - window.get("skip_last", 0)))


def nearest_divisors(number: int, wanted: int) -> list[int]:
    """The three divisors of a number that are nearest to the one that was wanted, nearest first."""
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    return sorted(divisors, key=lambda n: abs(n - wanted))[:3]
