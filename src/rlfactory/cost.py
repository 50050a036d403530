"""What an iteration costs in evaluations of the network (NFE), by arithmetic."""

from collections.abc import Mapping
from typing import Any

from rlfactory.crossings.base import Config, Traits, penalties, steps_trained


def accumulated(config: Config, traits: Traits) -> str:
    """How an update's training items are divided into micro-batches."""
    items, whole = update_items(config, traits)
    return f"{items} items an update / {config['micro_batch']} = {-(-items // whole)} accumulated"


def update_items(config: Config, traits: Traits) -> tuple[int, int]:
    """Training items of an update, and of a micro-batch, which has whole samples where it can, as
    `Items.split` has it.
    """
    samples = config["prompts_per_iteration"] * config["group_size"]
    each, size = items_per_sample(config, traits), config["micro_batch"]
    items = samples // config["updates_per_iteration"] * each
    return items, size - size % each if size >= each else size


def evaluations(config: Config, traits: Traits) -> str:
    """Evaluations of the network for a sample, in words."""
    if traits["model"].get("process") == "tokens":
        return f"{config['dynamics']['length']} of the network at most to sample a text, 1 to learn"
    guidance = _guidance(config)
    compared = guidance * compared_per_sample(config, traits)
    between = f" {compared:g} to compare policies on it," if compared else ""
    return (
        f"{guidance * drawn_per_sample(config, traits):g} of the network to sample a picture,"
        f"{between} {guidance * trained_per_sample(config, traits)} to learn from it"
    )


def per_iteration(config: Config, traits: Traits) -> float:
    """Evaluations of the network in an iteration on images."""
    if traits["model"].get("process") == "tokens":
        return 0.0
    each = drawn_per_sample(config, traits) + compared_per_sample(config, traits)
    each += trained_per_sample(config, traits)
    samples = int(config["prompts_per_iteration"] * config["group_size"])
    return _guidance(config) * each * samples


def _guidance(config: Config) -> int:
    """How many evaluations a prediction is."""
    return 2 if config["model"].get("guidance", 1) > 1 else 1


def items_per_sample(config: Config, traits: Traits) -> int:
    """How many training items a sample makes, a network evaluation with a gradient each."""
    needs = traits["algo"].get("needs")
    if needs != "transitions":
        return 1 if needs == "tokens" else int(config["times"].get("count", 1))
    drawn = 1 if config["branch_at"] == "step" else steps_trained(config)
    return max(1, int(drawn * config["algo"].get("step_fraction", 1.0)))


def trained_per_sample(config: Config, traits: Traits) -> int:
    """Evaluations with a gradient, in all passes."""
    return items_per_sample(config, traits) * int(config["epochs"])


def compared_per_sample(config: Config, traits: Traits) -> float:
    """Evaluations without a gradient while learning: by other weight sets, and by the policy of
    what it will have moved away from.
    """
    others = set(traits["algo"].get("compares") or ())
    others |= {reference_of(node) for _, node, _ in penalties(config, traits)} - {None}
    return trained_per_sample(config, traits) * len(others) + remembered_per_sample(config, traits)


def remembered_per_sample(config: Config, traits: Traits) -> float:
    """Evaluations that note the likelihood of samples before the policy moves."""
    algo, updates = config["algo"], config["updates_per_iteration"]
    if not traits["algo"].get("surrogate"):
        return 0
    spared = algo["shortcut"] and algo.get("behaviour", "policy") == "policy"
    share = (updates - 1) / updates if spared and config["epochs"] == 1 else 1
    return share * items_per_sample(config, traits)


def reference_of(node: Mapping[str, Any]) -> str | None:
    """The weight set that a penalty evaluates."""
    if "compare" in node:
        return "old" if node["compare"] == "prediction" else None
    return node.get("reference")


def drawn_per_sample(config: Config, traits: Traits) -> float:
    """Evaluations to draw a sample, on average over those that share a beginning.

    Where the window moves, its first position is counted.
    """
    steps, branches = int(config["schedule"]["steps"]), int(config["branches"])
    if traits["algo"].get("needs") != "transitions":
        return steps
    window = window_steps(config)
    if config["branch_at"] == "step":
        return sum(
            (i - before) / (branches * len(window)) + _from(i, 1, config) / len(window)
            for before, i in zip([0, *window], window, strict=False)
        )
    return window[0] / branches + _from(window[0], window[-1] - window[0] + 1, config)


def _from(first: int, drawn: int, config: Config) -> int:
    """Evaluations from a step on, of which the tail after `drawn` may be shortened."""
    rest = int(config["schedule"]["steps"]) - first - drawn
    if config["tail"] is None or not rest:
        return drawn + rest
    return drawn + max(1, int(rest * config["tail"] + 1e-9))


def window_steps(config: Config) -> list[int]:
    """The steps of a window, of one that moves where it begins."""
    window = config["window"]
    if "steps" in window:
        return sorted(set(window["steps"]))
    low = int(window.get("low", 0))
    return list(range(low, low + steps_trained(config)))
