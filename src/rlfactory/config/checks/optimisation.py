"""Rules on optimisation: advantages, updates, weight averages, the optimizer, regularizers; and on
algorithms that follow the gradient of a reward (`requires = "states"`).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from rlfactory.config.checks.base import Config, Traits, is_algorithm_mismatched, penalties
from rlfactory.config.options import options
from rlfactory.config.problems import Problem
from rlfactory.config.schema.signature import trait


def require_matching_algorithm(config: Config, traits: Traits) -> Iterator[Problem]:
    """Algorithms on tokens train language models; all others train image generators."""
    if not is_algorithm_mismatched(traits):
        return
    by_group = _by_group(config, traits)
    if traits["model"].get("process") == "tokens":
        made, fix = "tokens", "algo=grpo_token" if by_group else "algo=ppo"
    else:
        made, fix = "images", "algo=grpo" if by_group else "algo=ddpo"
    yield Problem("algo", f"this algorithm can't train a model that makes {made}", fix)


def require_groups_of_two(config: Config, traits: Traits) -> Iterator[Problem]:
    """An advantage relative to a group of one is always zero."""
    if config["group_size"] == 1 and _by_group(config, traits):
        message = "is 1, but advantages compare the samples of a group; allowed are 2 or more"
        yield Problem("group_size", message, "group_size=2")


def require_whole_pairs(config: Config, traits: Traits) -> Iterator[Problem]:
    """The two samples of a pair, or all of a group, are in one update."""
    pairs, groups = (traits["algo"].get(f"learns_from_{of}") for of in ("pairs", "groups"))
    if not (pairs or groups) or is_algorithm_mismatched(traits):
        return
    if pairs and config["group_size"] == 1 and traits["algo"].get("samples_from") != "data":
        message = "is 1, but the best and the worst sample of a group are compared"
        yield Problem("group_size", f"{message}; allowed are 2 or more", "group_size=4")
    if config["shares"] != "groups":
        parted = "the two samples of a pair" if pairs else "the samples of a group"
        message = f"is {config['shares']}, which parts {parted}; allowed is groups"
        yield Problem("shares", message, "shares=groups")


def require_resampled_groups(config: Config, traits: Traits) -> Iterator[Problem]:
    """A group of one sample never differs within; samples of the data have no scores."""
    if not config.get("resample"):
        return
    if config["group_size"] == 1:
        message = (
            f"is {config['resample']}, and a group of one sample (group_size=1) never differs"
            " within; allowed are groups of 2 or more"
        )
        yield Problem("resample", message, "resample=0")
    elif traits["algo"].get("samples_from") == "data":
        message = "draws further samples of the policy, and this algorithm learns from the data"
        yield Problem("resample", message, "resample=0")


def _by_group(config: Config, traits: Traits) -> bool:
    """Whether advantages are relative to the group of a prompt."""
    if traits["algo"].get("requires") == "tokens":
        return config["algo"].get("baseline") in ("group", "rloo")
    if traits["algo"].get("requires") == "states":
        return False
    node = config["advantage"]
    scopes = (node.get("mean"), node.get("std"))
    is_global = scopes in (("global", "global"), ("global", "none"))
    return bool(traits["advantage"].get("grouped")) and not (
        is_global and node.get("aggregate") != "gdpo"
    )


def require_warmup_before_end(config: Config, traits: Traits) -> Iterator[Problem]:
    """The warm-up of `warmup_cosine` ends before its total."""
    for key in ("ema", "old"):
        node = config[key]
        if node["schedule"] == "warmup_cosine" and node["warmup"] >= node["total"]:
            message = f"is {node['warmup']}, and the schedule ends at total={node['total']}"
            yield Problem(f"{key}.warmup", message, f"{key}.warmup={node['total'] // 10 or 1}")


def require_single_update(config: Config, traits: Traits) -> Iterator[Problem]:
    """On-policy algorithms (REINFORCE) make one update per iteration."""
    updates, epochs = config["updates_per_iteration"], config["epochs"]
    if traits["algo"].get("on_policy") and updates * epochs > 1:
        for key, count in (("updates_per_iteration", updates), ("epochs", epochs)):
            if count > 1:
                message = f"is {count}; allowed is 1, since a second update is not on-policy"
                if traits["algo"].get("requires") == "transitions":
                    message += " (algo=ddpo takes several)"
                yield Problem(key, message, f"{key}=1")


def require_equal_updates(config: Config, traits: Traits) -> Iterator[Problem]:
    """Every update gets the same number of samples or, with `shares=groups`, of groups."""
    count, unit = config["prompts_per_iteration"], "prompts"
    if config["shares"] != "groups":
        count, unit = count * config["group_size"], "samples"
    updates = config["updates_per_iteration"]
    if count % updates:
        divisors = [n for n in range(1, count + 1) if count % n == 0]
        near = sorted(sorted(divisors, key=lambda n: abs(n - updates))[:3])
        message = f"is {updates}, which does not divide the {count} {unit} of an iteration"
        yield Problem(
            "updates_per_iteration",
            f"{message}; nearest are {', '.join(map(str, near))}",
            f"updates_per_iteration={near[0]}",
        )


def require_valid_optimizer(config: Config, traits: Traits) -> Iterator[Problem]:
    """Learning rate, betas and the other numbers of the optimizer are in range."""
    optimizer = config["optimizer"]
    rate, betas = optimizer.get("lr"), optimizer.get("betas")
    if isinstance(rate, int | float) and not 0 < rate < math.inf:
        yield Problem("optimizer.lr", f"is {rate}; allowed is a number > 0", "optimizer.lr=1e-4")
    is_pair = isinstance(betas, list | tuple) and len(betas) == 2
    if betas is not None and not (
        is_pair and all(isinstance(beta, int | float) and 0 <= beta < 1 for beta in betas)
    ):
        message = f"is {betas}; allowed are two numbers >= 0 and < 1"
        yield Problem("optimizer.betas", message, "optimizer.betas=[0.9,0.999]")
    for name in ("eps", "weight_decay", "momentum"):
        value = optimizer.get(name, 0)
        if isinstance(value, int | float) and not 0 <= value < math.inf:
            message = f"is {value}; allowed is a number >= 0"
            yield Problem(f"optimizer.{name}", message, f"optimizer.{name}=0")


_RESERVED_NAMES = ("approx", "coefficient", "sequence")


def require_matching_divergence(config: Config, traits: Traits) -> Iterator[Problem]:
    """Divergences of steps need an algorithm on sampling steps, those of tokens one on tokens."""
    algo = traits["algo"].get("requires")
    for key, _, term_traits in penalties(config, traits):
        needs = term_traits.get("requires")
        if needs != "nothing" and (needs == "tokens") != (algo == "tokens"):
            remedy = "regularizer=kl_token" if algo == "tokens" else "regularizer=kl_v"
            message = "this divergence is of another kind of model"
            yield Problem(key, message, remedy if key == "regularizer" else "")
        elif needs == "transitions" and algo != "transitions":
            message = "this divergence compares sampling steps, and this algorithm keeps none"
            yield Problem(key, message, "regularizer=kl_v" if key == "regularizer" else "")


def require_matching_process(config: Config, traits: Traits) -> Iterator[Problem]:
    """A divergence that is derived for one noise process needs a model of that process."""
    model_process = traits["model"].get("process")
    for key, _, term_traits in penalties(config, traits):
        process = term_traits.get("process")
        if process and model_process not in (None, "tokens", process):
            message = f"this divergence is for a {process} process, the model's is {model_process}"
            yield Problem(key, message, "regularizer=kl_v" if key == "regularizer" else "")


def require_surrogate(config: Config, traits: Traits) -> Iterator[Problem]:
    """`compare=surrogate` needs an algorithm with a surrogate of the likelihood."""
    for key, node, _ in penalties(config, traits):
        if node.get("compare") == "surrogate" and not traits["algo"].get(
            "has_surrogate_likelihood"
        ):
            message = "is surrogate, and this algorithm has none; allowed is prediction"
            yield Problem(f"{key}.compare", message, f"{key}.compare=prediction")


def require_valid_terms(config: Config, traits: Traits) -> Iterator[Problem]:
    """A sum has terms; each is a divergence of images, under a name that is no other metric."""
    if traits["regularizer"].get("requires") != "terms":
        return
    if not config["regularizer"].get("terms"):
        message = "is empty, so nothing would be added; regularizer=none says that"
        yield Problem("regularizer.terms", message)
    for key, _, term_traits in penalties(config, traits):
        name = key.rpartition(".")[2]
        if term_traits.get("requires") in ("nothing", "terms", "tokens"):
            yield Problem(key, "is no divergence of images; a sum's terms are kl_v, kl_x and such")
        elif name in _RESERVED_NAMES:
            yield Problem(key, f"kl/{name} is another metric already; the term needs another name")


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
