"""Rules on optimisation: advantages, updates, weight averages, the optimizer, regularizers; and on
algorithms that follow the gradient of a reward (`requires = "states"`).
"""

import math
from collections.abc import Iterator

from rlfactory.config.checks.base import Config, Traits, is_algorithm_mismatched, only, penalties
from rlfactory.config.options import options
from rlfactory.config.problems import Problem
from rlfactory.config.schema.signature import trait
from rlfactory.utils.data_files import load_yaml


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


def require_group(config: Config, traits: Traits) -> Iterator[Problem]:
    """A group has the samples of a row of the data, or enough for those that compare them."""
    algo, is_paired = traits["algo"], traits["algo"].get("learns_from_pairs")
    if algo.get("samples_from") == "data":
        reason = "a row of the data is one sample, or two, chosen and rejected"
        yield from only(config, {"group_size": 2 if is_paired else 1}, reason)
        yield from only(config, {"resample": 0}, "only samples of the policy are drawn again")
        return
    if config["group_size"] > 1:
        return
    rewards = [own for key, own in traits.items() if f"{key}.".startswith("reward.")]
    compares = {
        "these advantages compare": _by_group(config, traits),
        "this reward compares": any(own.get("compares_group") for own in rewards),
        "this algorithm compares": is_paired and not is_algorithm_mismatched(traits),
        "resample compares": config.get("resample"),
    }
    if who := next((who for who, does in compares.items() if does), None):
        message = f"is 1, but {who} the samples of a group; allowed are 2 or more"
        yield Problem("group_size", message, "group_size=4")


def require_whole_groups(config: Config, traits: Traits) -> Iterator[Problem]:
    """The two samples of a pair, or all of a group, are in one update."""
    learns = [traits["algo"].get(f"learns_from_{of}") for of in ("pairs", "groups")]
    if any(learns) and not is_algorithm_mismatched(traits):
        reason = "this algorithm learns from a pair or a group as a whole"
        yield from only(config, {"shares": "groups"}, reason)


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
    if traits["algo"].get("on_policy"):
        reason = "a second update is not on-policy"
        yield from only(config, {"updates_per_iteration": 1, "epochs": 1}, reason)


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
    """Learning rate, betas and the other numbers of the optimizer are in range.

    Optimizers of other libraries say so as they are made, after the network has been loaded.
    """
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
    """Divergences are of what the algorithm has (tokens, sampling steps, none of the data's rows),
    and of the model's noise process; `compare=surrogate` needs a surrogate of the likelihood.
    """
    algo, process = traits["algo"], traits["model"].get("process")
    for key, _, own in penalties(config, traits):
        needs, requires = own.get("requires"), algo.get("requires")
        is_odd = needs != "nothing" and (needs == "tokens") != (requires == "tokens")
        fix = "regularizer=kl_token" if requires == "tokens" else "regularizer=kl_v"
        fault = ""
        if needs != "nothing" and algo.get("samples_from") == "data" and not is_odd:
            fault, fix = "is of the policy's own samples, and these are data", "regularizer=none"
        elif is_odd:
            fault = "this divergence is of another kind of model"
        elif needs == "transitions" and requires != "transitions":
            fault = "this divergence compares sampling steps, and this algorithm keeps none"
        elif own.get("process") and process not in (None, "tokens", own["process"]):
            fault = f"this divergence is for a {own['process']} process, the model's is {process}"
        if fault:
            yield Problem(key, fault, fix if key == "regularizer" else "")
        if not algo.get("has_surrogate_likelihood"):
            compared = {f"{key}.compare": "prediction"}
            yield from only(config, compared, "this algorithm has no surrogate of the likelihood")


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


def _with_gradient() -> Iterator[str]:
    """The names of the rewards that have one."""
    for name, path in options("reward").items():
        if trait((load_yaml(path.read_text()) or {}).get("reward"), "differentiable"):
            yield name


def require_reward_gradient(config: Config, traits: Traits) -> Iterator[Problem]:
    """The reward, or each part of a sum that counts, has a gradient, which runs through single
    steps and a reward that stays where it is; nothing else changes it.
    """
    if traits["algo"].get("requires") != "states" or is_algorithm_mismatched(traits):
        return
    if traits["model"].get("media") == "videos":
        message = "follows the gradient of a reward of one image, and the model makes videos"
        yield Problem("algo", message, "algo=nft")
        return
    keys, reason = ["reward"], "this algorithm follows the gradient of each reward"
    if traits["reward"].get("made_of") == "parts":
        weights = config["reward"]["weights"] or {}
        keys = [f"reward.parts.{n}" for n in config["reward"]["of"] if weights.get(n, 1) != 0]
        plain = {"reward.aggregate": "sum", "reward.normalise": "none"}
        yield from only(config, plain, reason)
    for key in keys:
        if not traits.get(key, {}).get("differentiable"):
            have = ", ".join(_with_gradient())
            message = f"has no gradient, which this algorithm follows; those of {have} do"
            yield Problem(key, message, "reward=jpeg_standin" if key == "reward" else "")
    if traits["dynamics"].get("is_multistep"):
        message = "the last steps are taken again with a gradient, and these need all before them"
        yield Problem("dynamics", message, "dynamics=ode")
    yield from only(config, {"scoring.offload": False, "resample": 0}, reason)
    if config["scoring"]["background"] == "process":
        message = "is process, and a gradient does not leave a process; allowed are thread and none"
        yield Problem("scoring.background", message, "scoring.background=thread")
