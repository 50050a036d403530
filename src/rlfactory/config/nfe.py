"""The number of function evaluations (NFE) of an iteration: forward passes of the network."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.checks.base import (
    Config,
    Traits,
    penalties,
    steps_trained,
    stochastic_steps,
)
from rlfactory.utils.batch_sizes import learning_passes, sampling_passes
from rlfactory.utils.tree_sizes import (
    branching_factor,
    edges_per_leaf,
    kept_children,
    nodes_after,
    skipped_steps,
)


def describe_accumulation(config: Config, traits: Traits) -> str:
    """How many micro-batches an update accumulates, in words."""
    items, size = update_items(config, traits)
    return f"{items} items an update / {config['micro_batch']} = {-(-items // size)} accumulated"


def update_items(config: Config, traits: Traits) -> tuple[int, int]:
    """The training items of an update and of a micro-batch.

    With one ratio for each sample a micro-batch holds complete samples if one fits, as in
    `TrainingItems.split`; of pairs it holds whole ones, and one at least.
    """
    samples = config["prompts_per_iteration"] * config["group_size"]
    per_sample, size = items_per_sample(config, traits), config["micro_batch"]
    items = int(samples // config["updates_per_iteration"] * per_sample)
    if one_ratio_per_sample(config, traits) and size >= per_sample:
        size -= size % int(per_sample)
    if traits["algo"].get("learns_from_pairs"):
        size = max(2, size - size % 2)
    return items, size


def one_ratio_per_sample(config: Config, traits: Traits) -> bool:
    """Whether all items of a sample have one ratio."""
    return bool(
        traits["algo"].get("one_ratio_per_sample") or config["algo"].get("ratio") == "sum_first"
    )


def describe_nfe(config: Config, traits: Traits) -> str:
    """The forward passes for a sample, in words."""
    if traits["model"].get("process") == "tokens":
        if traits["reward"].get("gives_scores") is False and not config["eval_rewards"]["of"]:
            return "1 forward pass to learn from a text; none are sampled"
        return f"{config['dynamics']['length']} forward passes at most to sample a text, 1 to learn"
    sampled, compared, trained = passes_per_sample(config, traits)
    comparing = f" {compared:g} to compare policies on it," if compared else ""
    return f"{sampled:g} forward passes to sample an image,{comparing} {trained:g} to learn from it"


def passes_per_sample(config: Config, traits: Traits) -> tuple[float, float, float]:
    """Forward passes for an image: to sample it, to compare policies on it, to learn from it."""
    counts = (
        nfe_sample(config, traits),
        nfe_compare(config, traits),
        nfe_train(config, traits),
    )
    sampled, compared, trained = (_guidance(config) * count for count in counts)
    return sampled, compared, trained


def nfe_per_iteration(config: Config, traits: Traits) -> float:
    """The forward passes of an iteration on images; 0 for texts."""
    if traits["model"].get("process") == "tokens":
        return 0.0
    samples = int(config["prompts_per_iteration"] * config["group_size"])
    return sum(passes_per_sample(config, traits)) * samples


def _guidance(config: Config) -> int:
    """Forward passes per prediction: two with classifier-free guidance."""
    return 2 if config["model"].get("guidance", 1) > 1 else 1


def items_per_sample(config: Config, traits: Traits) -> float:
    """Training items per sample, on average; each is one forward and backward pass."""
    requires = traits["algo"].get("requires")
    if requires != "transitions":
        # of a group of images, a pair is learned from
        learned = 2 / config["group_size"] if traits["algo"].get("learns_from_pairs") else 1
        return 1 if requires == "tokens" else learned * int(config["times"].get("count", 1))
    if config["branch_at"] == "tree":
        return _edges_per_leaf(config)
    drawn = 1 if config["branch_at"] == "step" else steps_trained(config)
    return max(1, int(drawn * config["algo"].get("step_fraction", 1.0)))


def _edges_per_leaf(config: Config) -> float:
    """Training items of a tree per sample; where pruned steps move, in the first iteration."""
    algo, branches, splits = config["algo"], config["branches"], config["tree"]["splits"]
    every, stop = algo.get("slide_every"), algo.get("slide_to", 0)
    skipped = skipped_steps(algo.get("skip_steps") or [], 0, every, stop)
    steps = [step for step in stochastic_steps(config) if step not in skipped]
    leaves, factor = config["group_size"], branching_factor(branches, len(splits))
    width, share = algo.get("width", "none"), algo.get("width_kept", 1.0)
    kept = kept_children(width, share, factor, leaves) / leaves
    return edges_per_leaf(steps, branches, splits, kept=kept)


def nfe_train(config: Config, traits: Traits) -> float:
    """Forward passes with a gradient per sample, in all epochs."""
    return items_per_sample(config, traits) * int(config["epochs"])


def nfe_compare(config: Config, traits: Traits) -> float:
    """Forward passes per sample without a gradient while learning, for other weight sets and old
    log-likelihoods.
    """
    others = set(traits["algo"].get("compared_weight_sets") or ())
    others |= {reference_of(node) for _, node, _ in penalties(config, traits)} - {None}
    return nfe_train(config, traits) * len(others) + nfe_old_log_likelihoods(config, traits)


def nfe_old_log_likelihoods(config: Config, traits: Traits) -> float:
    """Forward passes per sample for old log-likelihoods: of a surrogate before the first update,
    and again for the ratios of samples that micro-batches divide; of sampling steps where
    they are recomputed.
    """
    algo, epochs = config["algo"], config["epochs"]
    updates, items = config["updates_per_iteration"], items_per_sample(config, traits)
    is_skipped = algo.get("shortcut", True) and algo.get("behaviour", "policy") == "policy"
    share = (updates - 1) / updates if is_skipped and epochs == 1 else 1
    if not traits["algo"].get("has_surrogate_likelihood"):
        return share * items if recomputes_old_log_probs(config, traits) else 0
    is_divided = one_ratio_per_sample(config, traits) and config["micro_batch"] < items
    return share * items * (1 + epochs if is_divided else 1)


def recomputes_old_log_probs(config: Config, traits: Traits) -> bool:
    """Whether log-probabilities of sampling steps are recomputed before the first update, as
    `algo.ops.old_log_probs` decides while training.
    """
    option, precision = config["algo"].get("old_log_probs"), config["precision"]
    if traits["algo"].get("requires") != "transitions" or option in (None, "sampled"):
        return False
    if option == "recomputed" or precision["rollout"] != precision["learning"]:
        return True
    if precision["learning"] == "float32":
        return False
    if config["branch_at"] == "tree":
        return True
    samples = config["prompts_per_iteration"] * config["group_size"]
    processes = config["hardware"].get("processes")
    samples //= processes if isinstance(processes, int) else 1
    passes = learning_passes(
        int(samples * items_per_sample(config, traits)),
        config["updates_per_iteration"],
        config["micro_batch"],
    )
    passes |= sampling_passes(
        samples,
        config["sample_batch"],
        branches=config["branches"],
        steps=steps_trained(config),
        branch_at=config["branch_at"],
    )
    return len(passes) > 1


def reference_of(node: Mapping[str, Any]) -> str | None:
    """The weight set that a penalty compares with; None if it evaluates none."""
    if "compare" in node:
        return "old" if node["compare"] == "prediction" else None
    return node.get("reference")


def nfe_sample(config: Config, traits: Traits) -> float:
    """Forward passes to sample an image, on average over branches, which share their first steps.

    Of a moving window the first position is counted. None where the data give the images.
    """
    if traits["algo"].get("samples_from") == "data":
        return 0.0
    steps, branches = int(config["schedule"]["steps"]), int(config["branches"])
    if traits["algo"].get("requires") != "transitions":
        return steps
    window = stochastic_steps(config)
    if config["branch_at"] == "tree":
        splits, last = config["tree"]["splits"], window[-1]
        nodes = (nodes_after(i - 1, branches, splits) for i in range(last + 1))
        return sum(nodes) / branches + _passes_from(last + 1, 0, config)
    if config["branch_at"] == "step":
        return sum(
            (i - before) / (branches * len(window)) + _passes_from(i, 1, config) / len(window)
            for before, i in zip([0, *window], window, strict=False)
        )
    return window[0] / branches + _passes_from(window[0], window[-1] - window[0] + 1, config)


def _passes_from(first: int, drawn: int, config: Config) -> int:
    """Forward passes from step `first` on; the tail after `drawn` steps may be shortened."""
    rest = int(config["schedule"]["steps"]) - first - drawn
    if config["tail"] is None or not rest:
        return drawn + rest
    return drawn + max(1, int(rest * config["tail"] + 1e-9))
