"""Rules on the further prompt sets of evaluations."""

import re
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from rlfactory.config.checks.base import Config, Rule, Traits
from rlfactory.config.checks.data import require_answers, require_metadata, require_prompt_feature
from rlfactory.config.checks.prompt_files import require_readable_prompts, require_splits
from rlfactory.config.problems import Problem

_OF_PROMPTS: tuple[Rule, ...] = (
    require_readable_prompts,
    require_splits,
    require_metadata,
    require_answers,
    require_prompt_feature,
)


def require_named_sets(config: Config, traits: Traits) -> Iterator[Problem]:
    """Names are distinct, can name a folder, and options are of sets that are named."""
    node = config["eval_sets"]
    names = node["of"]
    for name in {name for name in names if names.count(name) > 1}:
        message = f"names {name} twice; to have it twice, name a part of your own"
        yield Problem("eval_sets.of", message, f"eval_sets.of=[{','.join(dict.fromkeys(names))}]")
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


def require_fitting_sets(config: Config, traits: Traits) -> Iterator[Problem]:
    """Each set can be read, and has what its rewards read of prompts."""
    for name in config["eval_sets"]["of"]:
        key = f"eval_sets.parts.{name}"
        of_set, own = _of_set(config, traits, name)
        for rule in _OF_PROMPTS:
            for problem in rule(of_set, own):
                yield _as_of_set(problem, name, key)


def _of_set(config: Config, traits: Traits, name: str) -> tuple[Config, Traits]:
    """Configuration and traits as if the set were the prompts, and its rewards those of the run."""
    sets, rewards = config["eval_sets"], config["eval_rewards"]
    named = sets["rewards"].get(name)
    own: ChainMap[str, Any] = ChainMap(
        {"prompts": traits.get(f"eval_sets.parts.{name}", {})}, cast("Any", traits)
    )
    changed: ChainMap[str, Any] = ChainMap({"prompts": sets["parts"][name]}, cast("Any", config))
    if named is not None:
        changed["eval_rewards"] = {**rewards, "of": named}
        own["reward"] = {}  # it does not score this set
    return changed, own


def _as_of_set(problem: Problem, name: str, key: str) -> Problem:
    """A problem of the prompts, or of a reward, as one of a set."""
    if problem.key.startswith("prompts"):
        below = problem.key.removeprefix("prompts")
        fix = problem.fix.replace("prompts.", f"{key}.") if "." in problem.fix else ""
        return replace(problem, key=key + below, fix=fix)
    message = f"{problem.key}: {problem.message}"
    rewards = f"eval_sets.rewards.{name}"
    return Problem(rewards, message, f"{rewards}=[compressibility]")
