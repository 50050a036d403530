"""Rules on algorithms that follow the gradient of a reward (`requires = "states"`)."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from rlfactory.config.checks.base import Config, Traits, is_algorithm_mismatched
from rlfactory.config.options import options
from rlfactory.config.problems import Problem
from rlfactory.config.schema.signature import trait


def _follows(traits: Traits) -> bool:
    """Whether the algorithm follows a reward's gradient, and is for the model's medium."""
    is_own = traits["algo"].get("requires") == "states"
    return is_own and not is_algorithm_mismatched(traits)


def _with_gradient() -> Iterator[str]:
    """The names of the rewards that have one."""
    for name, path in options("reward").items():
        if trait((yaml.safe_load(path.read_text()) or {}).get("reward"), "differentiable"):
            yield name


def require_reward_gradient(config: Config, traits: Traits) -> Iterator[Problem]:
    """The reward, or each part of a sum that counts, has a gradient; nothing else changes it."""
    if not _follows(traits):
        return
    if traits["model"].get("media") == "videos":
        message = "follows the gradient of a reward of one image, and the model makes videos"
        yield Problem("algo", message, "algo=nft")
        return
    node = config["reward"]
    if traits["reward"].get("made_of") != "parts":
        parts: Mapping[str, Mapping[str, Any]] = {"reward": traits["reward"]}
    else:
        weights = node["weights"] or {}
        names = [name for name in node["of"] if weights.get(name, 1) != 0]
        parts = {f"reward.parts.{n}": traits.get(f"reward.parts.{n}", {}) for n in names}
        if node["aggregate"] != "sum":
            message = f"is {node['aggregate']}, and the gradient is that of a sum; allowed is sum"
            yield Problem("reward.aggregate", message, "reward.aggregate=sum")
        if node["normalise"] != "none":
            message = f"is {node['normalise']}, which has no gradient; allowed is none"
            yield Problem("reward.normalise", message, "reward.normalise=none")
    for key, own in parts.items():
        if not own.get("differentiable"):
            have = ", ".join(_with_gradient())
            message = f"has no gradient, which this algorithm follows; those of {have} do"
            yield Problem(key, message, "reward=jpeg_standin" if key == "reward" else "")


def require_gradient_path(config: Config, traits: Traits) -> Iterator[Problem]:
    """The gradient runs through single steps and a reward that stays where it is."""
    if not _follows(traits):
        return
    if traits["dynamics"].get("is_multistep"):
        message = "the last steps are taken again with a gradient, and these need all before them"
        yield Problem("dynamics", message, "dynamics=ode")
    if config["scoring"]["offload"]:
        message = "is true, and the gradient runs through the reward; allowed is false"
        yield Problem("scoring.offload", message, "scoring.offload=false")
    if config["scoring"]["background"] == "process":
        message = "is process, and a gradient does not leave a process; allowed are thread and none"
        yield Problem("scoring.background", message, "scoring.background=thread")
    if config["resample"]:
        message = f"is {config['resample']}, and samples are not compared; allowed is 0"
        yield Problem("resample", message, "resample=0")
