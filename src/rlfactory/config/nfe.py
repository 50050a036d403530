"""The number of function evaluations (NFE) of an iteration: forward passes of the network."""

from typing import Any

from rlfactory.config.checks.base import Config, Traits, penalties, stochastic_steps
from rlfactory.config.memory.devices import processes_of
from rlfactory.config.schema.targets import class_function, trusted_by
from rlfactory.utils.sizes import learning_passes, nodes_after, sampling_passes


def describe_accumulation(config: Config, traits: Traits) -> str:
    """How many micro-batches an update accumulates, in words."""
    items, size = update_items(config, traits)
    held = max(size, config["micro_batch"])
    return f"{items} items an update / {held} = {-(-items // size)} accumulated"


def update_items(config: Config, traits: Traits) -> tuple[int, int]:
    """The training items of an update and of a micro-batch.

    With one ratio for each sample a micro-batch holds complete samples if one fits, as in
    `TrainingItems.split`; of pairs or groups it holds whole ones, and one at least.
    """
    samples = config["prompts_per_iteration"] * config["group_size"]
    per_sample, size = items_per_sample(config, traits), config["micro_batch"]
    items = int(samples // config["updates_per_iteration"] * per_sample)
    if of_algo(config, traits, "one_ratio_per_sample") and size >= per_sample:
        size -= size % int(per_sample)
    whole = config["group_size"] if traits["algo"].get("learns_from_groups") else 1
    whole = 2 if traits["algo"].get("learns_from_pairs") else whole
    return items, max(whole, size - size % whole)


def attribute(node: Config, traits: Config, name: str, default: Any = None) -> Any:
    """An attribute of a component, by the option of `decided_by` or of its name, else its class."""
    option, values = traits.get("decided_by", {}).get(name, (name, None))
    if option in node:
        return node[option] if values is None else values.get(node[option])
    return traits.get(name, default)


def of_algo(config: Config, traits: Traits, name: str, default: Any = None) -> Any:
    """An attribute of the algorithm."""
    return attribute(config["algo"], traits["algo"], name, default)


def draws_nothing(config: Config, traits: Traits) -> bool:
    """Whether the run learns from data without a reward, so that nothing scores a sample."""
    return traits["reward"].get("gives_scores") is False and not config["eval_rewards"]["of"]


def describe_nfe(config: Config, traits: Traits) -> str:
    """The forward passes for a sample, in words."""
    if traits["model"].get("process") == "tokens":
        if draws_nothing(config, traits):
            return "1 forward pass to learn from a text; none are sampled"
        return f"{config['dynamics']['length']} forward passes at most to sample a text, 1 to learn"
    sampled, compared, trained = passes_per_sample(config, traits)
    comparing = f" {compared:g} to compare policies on it," if compared else ""
    return f"{sampled:g} forward passes to sample an image,{comparing} {trained:g} to learn from it"


def passes_per_sample(config: Config, traits: Traits) -> tuple[float, float, float]:
    """Forward passes for an image: to sample it, to compare policies on it, to learn from it."""
    rows = passes_per_prediction(config)
    compared, trained = nfe_compare(config, traits), nfe_train(config, traits)
    return rows * nfe_sample(config, traits), rows * compared, rows * trained


def nfe_per_iteration(config: Config, traits: Traits) -> float:
    """The forward passes of an iteration on images; 0 for texts."""
    if traits["model"].get("process") == "tokens":
        return 0.0
    samples = int(config["prompts_per_iteration"] * config["group_size"])
    return sum(passes_per_sample(config, traits)) * samples


def passes_per_prediction(config: Config) -> int:
    """Rows of a pass for each sample: two with classifier-free guidance."""
    return 2 if (config["model"].get("guidance") or 0) > 1 else 1


def items_per_sample(config: Config, traits: Traits) -> float:
    """Training items per sample, on average; each is one forward and backward pass."""
    requires = traits["algo"].get("requires")
    steps = stochastic_steps(config) if requires == "transitions" else ()
    own = class_function(config["algo"]["_target_"], "items", trusted_by(config))
    if own is not None:
        return float(own(config["algo"], config, steps))
    if requires != "transitions":
        # of a group, a pair is learned from
        learned = 2 / config["group_size"] if traits["algo"].get("learns_from_pairs") else 1
        is_noised = requires == "forward_process"
        return learned * (int(config["times"].get("count", 1)) if is_noised else 1)
    drawn = 1 if config["branch_at"] == "step" else len(steps)
    return max(1, int(drawn * config["algo"].get("step_fraction", 1.0)))


def passes_per_item(config: Config) -> tuple[float, float]:
    """Passes with a gradient of a training item, on average, and how many are held at once."""
    own = class_function(config["algo"]["_target_"], "passes", trusted_by(config))
    return (1.0, 1.0) if own is None else own(config["algo"], config)


def nfe_train(config: Config, traits: Traits) -> float:
    """Forward passes with a gradient per sample, in all epochs."""
    items = items_per_sample(config, traits) * int(config["epochs"])
    return items * passes_per_item(config)[0]


def nfe_compare(config: Config, traits: Traits) -> float:
    """Forward passes per sample for other weight sets and old log-likelihoods while learning."""
    others = set(of_algo(config, traits, "compared_weight_sets", ())) | references(config, traits)
    networks = len(others) + (frozen_networks(config) > 0)
    compared = items_per_sample(config, traits) * int(config["epochs"]) * networks
    return compared + nfe_old_log_likelihoods(config, traits)


def frozen_networks(config: Config) -> int:
    """The networks beside the model that the algorithm compares with, one for each sample."""
    own = class_function(config["algo"]["_target_"], "networks", trusted_by(config))
    return 0 if own is None else int(own(config["algo"]))


def references(config: Config, traits: Traits) -> set[str]:
    """The weight sets that penalties compare with."""
    found = penalties(config, traits)
    return {name for _, node, own in found if (name := attribute(node, own, "reference"))}


def weight_sets(config: Config, traits: Traits) -> set[str]:
    """The weight sets besides the policy, each a copy of the trained parameters.

    `ema` is kept where it is evaluated, or compared with.
    """
    names = {*of_algo(config, traits, "compared_weight_sets", ()), config["algo"].get("behaviour")}
    names |= references(config, traits)
    if config["evaluation"]["weights"] == "ema":
        names.add("ema")
    if config["evaluation"]["policy_fraction"] < 1:
        names.add("reference")  # for the last steps of evaluations
    without_copy = {None, "policy"}
    starts = config.get("begin_from") and config.get("reference_from") == "start"
    starts = starts and config.get("begin_as") != "merged"
    moves = any(own.get("moves_reference") for _, _, own in penalties(config, traits))
    if config["model"]["finetune"] == "lora" and not starts and not moves:
        without_copy.add("reference")  # it is the network without its adapters
    return names - without_copy


def nfe_old_log_likelihoods(config: Config, traits: Traits) -> float:
    """Forward passes per sample for old log-likelihoods: of a surrogate before the first update,
    again for the ratios of divided samples; of sampling steps where they are recomputed.
    """
    epochs, updates = config["epochs"], config["updates_per_iteration"]
    items = items_per_sample(config, traits)
    on_policy = of_algo(config, traits, "behaviour", "policy") == "policy"
    is_skipped = on_policy and of_algo(config, traits, "skip_old_log_probs", True)
    share = (updates - 1) / updates if is_skipped and epochs == 1 else 1
    if not traits["algo"].get("has_surrogate_likelihood"):
        return share * items if recomputes_old_log_probs(config, traits) else 0
    is_divided = of_algo(config, traits, "one_ratio_per_sample") and config["micro_batch"] < items
    return share * items * (1 + epochs if is_divided else 1)


def recomputes_old_log_probs(config: Config, traits: Traits) -> bool:
    """Whether log-probabilities of sampling steps are recomputed before the first update, as
    `algo.ops.old_log_probs` decides while training.
    """
    option, precision = of_algo(config, traits, "old_log_probs"), config["precision"]
    if traits["algo"].get("requires") != "transitions" or option in (None, "sampled"):
        return False
    if option == "recomputed" or precision["rollout"] != precision["learning"]:
        return True
    if precision["learning"] == "float32":
        return False
    if config["branch_at"] == "tree":
        return True
    samples = config["prompts_per_iteration"] * config["group_size"] // processes_of(config)
    items = int(samples * items_per_sample(config, traits))
    passes = learning_passes(items, config["updates_per_iteration"], config["micro_batch"])
    passes |= sampling_passes(
        samples,
        config["sample_batch"],
        branches=config["branches"],
        steps=len(stochastic_steps(config)),
        branch_at=config["branch_at"],
    )
    return len(passes) > 1


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
