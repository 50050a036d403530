"""Rules on components with parts: combined rewards, evaluation rewards, prompt sets, loggers."""

import re
from collections.abc import Iterator
from importlib.util import find_spec

from rlfactory.config.checks.base import Config, Traits, only
from rlfactory.config.problems import Problem

USUAL = {"reward": "compressibility", "logger": "wandb,tensorboard"}
"""The usual parts, of what needs some."""


def require_distinct_parts(config: Config, traits: Traits) -> Iterator[Problem]:
    """`of` names no part twice, none that has parts itself and none `combined`, as their sum is."""
    for key in ("reward", "eval_rewards", "eval_sets"):
        yield from _part_problems(config, traits, key)


def require_distinct_loggers(config: Config, traits: Traits) -> Iterator[Problem]:
    """The same of loggers, which `rlfactory sync` asks of alone."""
    yield from _part_problems(config, traits, "logger")


def _part_problems(config: Config, traits: Traits, key: str) -> Iterator[Problem]:
    if key in USUAL and traits.get(key, {}).get("made_of") != "parts":
        return
    names = config[key].get("of", [])
    parts = dict.fromkeys([*names, *config[key].get("parts", ())])  # sets name some too
    if key in USUAL and not names:
        message = "is empty; name the parts that it is made of"
        yield Problem(f"{key}.of", message, f"{key}.of=[{USUAL[key]}]")
    for name in {name for name in names if names.count(name) > 1}:
        message = f"names {name} twice; to have it twice, name a part of your own"
        yield Problem(f"{key}.of", message, f"{key}.of=[{','.join(dict.fromkeys(names))}]")
    if "combined" in names:
        yield Problem(f"{key}.of", "a part can't be named combined, as their sum is")
    for name in parts:
        if traits.get(place := f"{key}.parts.{name}", {}).get("made_of") == "parts":
            yield Problem(place, "is made of parts itself; a part is a single one")


def require_gdpo_advantage(config: Config, traits: Traits) -> Iterator[Problem]:
    """GDPO needs an advantage that aggregates the parts' scores itself."""
    is_combined = traits["reward"].get("made_of") == "parts"
    if not is_combined or config["reward"]["aggregate"] != "gdpo":
        return
    if traits["algo"].get("requires") == "tokens":
        reason = "this algorithm has an advantage of its own"
        yield from only(config, {"reward.aggregate": "sum"}, reason)
    elif config["advantage"].get("aggregate") != "gdpo":
        message = "reward.aggregate=gdpo needs an advantage over several rewards"
        yield Problem("advantage", message, "advantage=gdpo")
    else:
        reason = "reward.aggregate=gdpo weighs by reward.weights"
        yield from only(config, {"advantage.weights": None}, reason)
    yield from only(config, {"reward.normalise": "none"}, "gdpo normalises by group itself")


def require_installed(config: Config, traits: Traits) -> Iterator[Problem]:
    """The packages that loggers and the engine import are installed."""
    parts = [f"logger.parts.{name}" for name in config["logger"].get("of", [])]
    for key in ("logger", *parts, "engine"):
        own = traits.get(key, {})
        if (package := own.get("package")) is None:
            continue
        spec = find_spec(package)
        # a folder of that name without __init__.py has no origin
        if spec is None or spec.origin is None:
            brings = f"'rlfactory[{own['extra']}]'" if own.get("extra") else package
            other = "take engine=vllm_server" if key == "engine" else "leave it out"
            message = f"needs the package {package}, which is not installed"
            fix = "engine=own" if key == "engine" else ""
            yield Problem(key, f"{message}; type pip install {brings}, or {other}", fix)


def require_named_sets(config: Config, traits: Traits) -> Iterator[Problem]:
    """Names can name a folder, and options are of sets that are named."""
    node, names = config["eval_sets"], config["eval_sets"]["of"]
    for name in names:
        if not re.fullmatch(r"\w[\w-]*", name):
            yield Problem("eval_sets.of", f"{name!r} names a folder: letters, digits, _ and -")
    for option in ("rewards", "counts"):
        for name in node[option]:
            if name not in names:
                message = f"has a value, but eval_sets.of names no {name}"
                fix = f"eval_sets.of=[{','.join([*names, name])}]"
                yield Problem(f"eval_sets.{option}.{name}", message, fix)
    for name, rewards in node["rewards"].items():
        key = f"eval_sets.rewards.{name}"
        if not rewards or len({*rewards}) < len(rewards):
            unique = ",".join(dict.fromkeys(rewards)) or "compressibility"
            yield Problem(key, "must name rewards, none twice", f"{key}=[{unique}]")
