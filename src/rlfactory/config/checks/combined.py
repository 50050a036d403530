"""Rules on components with parts: combined rewards, evaluation rewards, prompt sets, loggers."""

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from rlfactory.config.checks.base import Config, Traits, repeated_names, rewards_of
from rlfactory.config.problems import Problem


def _combined(config: Config, traits: Traits) -> Config | None:
    """The node of a combined reward; None if the reward is a single one."""
    return config["reward"] if traits["reward"].get("made_of") == "parts" else None


def require_distinct_rewards(config: Config, traits: Traits) -> Iterator[Problem]:
    """`of` names at least one reward, none twice, none that has parts itself, none `combined`."""
    for key in ("reward", "eval_rewards"):
        names = config[key].get("of", []) if key != "reward" or _combined(config, traits) else []
        yield from repeated_names(f"{key}.of", names)
        if "combined" in names:
            yield Problem(f"{key}.of", "a part can't be named combined, as their sum is")
    for key, _, reward_traits in rewards_of(config, traits):
        if reward_traits.get("made_of") == "parts":
            yield Problem(key, "is made of parts itself; a part is a single reward")
    node = _combined(config, traits)
    if node is not None and not node["of"]:
        remedy = "reward.of=[compressibility]"
        yield Problem("reward.of", "is empty; name the rewards that it is made of", remedy)


def require_gdpo_advantage(config: Config, traits: Traits) -> Iterator[Problem]:
    """GDPO needs an advantage that aggregates the parts' scores itself."""
    node = _combined(config, traits)
    if node is None or node["aggregate"] != "gdpo":
        return
    if traits["algo"].get("requires") == "tokens":
        message = "is gdpo, and this algorithm has an advantage of its own; allowed is sum"
        yield Problem("reward.aggregate", message, "reward.aggregate=sum")
    elif config["advantage"].get("aggregate") != "gdpo":
        message = "reward.aggregate=gdpo needs an advantage over several rewards"
        yield Problem("advantage", message, "advantage=gdpo")
    elif config["advantage"].get("weights") is not None:
        message = "are those of reward.weights with reward.aggregate=gdpo"
        yield Problem("advantage.weights", message, "advantage.weights=null")
    if isinstance(node["normalise"], Mapping) or node["normalise"] != "none":
        message = f"is {node['normalise']}, and gdpo normalises by group itself; allowed is none"
        yield Problem("reward.normalise", message, "reward.normalise=none")


def require_distinct_loggers(config: Config, traits: Traits) -> Iterator[Problem]:
    """`logger.of` names at least one logger, none twice, and none that has parts itself."""
    if traits["logger"].get("made_of") != "parts":
        return
    names = config["logger"]["of"]
    if not names:
        remedy = "logger.of=[wandb,tensorboard]"
        yield Problem("logger.of", "is empty; name the loggers that there are to be", remedy)
    yield from repeated_names("logger.of", names)
    for name in names:
        key = f"logger.parts.{name}"
        if traits.get(key, {}).get("made_of") == "parts":
            yield Problem(key, "is several itself; a part is a single logger")


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
    """Names are distinct, can name a folder, and options are of sets that are named."""
    node = config["eval_sets"]
    names = node["of"]
    yield from repeated_names("eval_sets.of", names)
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
