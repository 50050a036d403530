"""How is learned: advantages, updates, times, averages, the optimiser."""

import math
from collections.abc import Iterator, Mapping

from rlfactory.crossings.base import Config, Traits, nearest_divisors
from rlfactory.problems import Problem


def algorithm_fits_model(config: Config, traits: Traits) -> Iterator[Problem]:
    """Images are made by processes with noise, texts by tokens."""
    wants_tokens = traits["algo"].get("needs") == "tokens"
    has_tokens = traits["model"].get("process") == "tokens"
    if wants_tokens != has_tokens:
        made = "tokens" if has_tokens else "images"
        yield Problem("algo", f"this algorithm can't train a model that makes {made}")


def groups_have_members(config: Config, traits: Traits) -> Iterator[Problem]:
    """An advantage relative to a group of one is always zero."""
    if config["group_size"] == 1 and _by_group(config, traits):
        message = "is 1, but advantages compare the samples of a group; allowed are 2 or more"
        yield Problem("group_size", message, "group_size=12")


def _by_group(config: Config, traits: Traits) -> bool:
    """Whether advantages compare the samples of a prompt."""
    if traits["algo"].get("needs") == "tokens":
        return config["algo"].get("baseline") in ("group", "rloo")
    node = config["advantage"]
    scopes = (node.get("mean"), node.get("std"))
    at_large = scopes in (("global", "global"), ("global", "none"))
    return bool(traits["advantage"].get("grouped")) and not (
        at_large and node.get("aggregate") != "gdpo"
    )


def weights_weigh(config: Config, traits: Traits) -> Iterator[Problem]:
    """Scores that are named to train count for something."""
    weights = config["advantage"].get("weights")
    if isinstance(weights, Mapping) and not any(weights.values()):
        message = "gives no score a weight other than 0, so nothing would be trained"
        yield Problem("advantage.weights", message, "advantage.weights=null")


def buffers_fill(config: Config, traits: Traits) -> Iterator[Problem]:
    """A prompt's buffer can hold as many rewards as its statistics need."""
    size, least = (config["advantage"].get(name, 0) for name in ("buffer_size", "min_count"))
    if least > size:
        message = f"is {least}, and a buffer holds {size}: no prompt would have its own statistics"
        yield Problem("advantage.min_count", message, f"advantage.min_count={size}")


def averages_have_time(config: Config, traits: Traits) -> Iterator[Problem]:
    """A warm-up that a cosine follows ends before it does."""
    for key in ("ema", "old"):
        node = config[key]
        if node["schedule"] == "warmup_cosine" and node["warmup"] >= node["total"]:
            message = f"is {node['warmup']}, and the schedule ends at total={node['total']}"
            yield Problem(f"{key}.warmup", message, f"{key}.warmup={node['total'] // 10 or 1}")


def one_update_on_policy(config: Config, traits: Traits) -> Iterator[Problem]:
    """REINFORCE takes samples of the policy as it is, which they are once."""
    updates, epochs = config["updates_per_iteration"], config["epochs"]
    if traits["algo"].get("on_policy") and updates * epochs > 1:
        message = f"are {updates} in each of {epochs} passes; allowed is one of one: the second"
        yield Problem(
            "updates_per_iteration",
            f"{message} would not be on-policy",
            "updates_per_iteration=1 epochs=1 (or algo=ddpo)",
        )


def samples_stay_whole(config: Config, traits: Traits) -> Iterator[Problem]:
    """A ratio of a whole sample needs all its items in one micro-batch."""
    whole = traits["algo"].get("whole_samples") or config["algo"].get("ratio") == "sum_first"
    if whole and config["micro_batch"] < config["times"]["count"]:
        message = f"is {config['micro_batch']}, but a sample's {config['times']['count']} items"
        yield Problem(
            "micro_batch",
            f"{message} are weighed together",
            f"micro_batch={config['times']['count']}",
        )


def updates_have_samples(config: Config, traits: Traits) -> Iterator[Problem]:
    """Every update gets the same number of samples."""
    samples = config["prompts_per_iteration"] * config["group_size"]
    updates = config["updates_per_iteration"]
    if samples % updates:
        near = sorted(nearest_divisors(samples, updates))
        message = f"is {updates}, which does not divide the {samples} samples of an iteration"
        yield Problem(
            "updates_per_iteration",
            f"{message}; nearest are {', '.join(map(str, near))}",
            f"updates_per_iteration={near[0]}",
        )


def times_within_steps(config: Config, traits: Traits) -> Iterator[Problem]:
    """Times lie in a range, and no more are taken of a schedule than it has to choose from."""
    if traits["algo"].get("needs") != "forward_process":
        return
    times, steps = config["times"], config["schedule"]["steps"]
    low, high = times.get("low") or 0.0, times.get("high") or 1.0
    if low >= high:
        message = f"is {low}, but the range of times ends at {high}"
        yield Problem("times.low", message, "times.low=0")
    # a fraction of the noise levels never draws its last step, whichever that is
    whole = times.get("space") == "sigma"
    end = steps - 1 if whole else int(steps * (times.get("fraction") or 1))
    room = end - (times.get("first") == "never")
    if traits["times"].get("of_schedule") and times.get("count", 0) > room:
        message = (
            f"is {times['count']}, more training steps than sampled ones:"
            f" {max(room, 0)} of {steps} can be drawn"
        )
        remedy = f"times.count={room}" if room > 0 else f"schedule.steps={10 * times['count']}"
        yield Problem("times.count", message, remedy)


def optimizer_moves(config: Config, traits: Traits) -> Iterator[Problem]:
    """A learning rate is positive, and moments decay at rates below 1."""
    optimizer = config["optimizer"]
    rate, betas = optimizer.get("lr"), optimizer.get("betas")
    if isinstance(rate, int | float) and not 0 < rate < math.inf:
        yield Problem("optimizer.lr", f"is {rate}; allowed is a number > 0", "optimizer.lr=1e-4")
    if betas is not None and (len(_rates(betas)) != 2 or len(betas) != 2):
        message = f"is {betas}; allowed are two numbers >= 0 and < 1"
        yield Problem("optimizer.betas", message, "optimizer.betas=[0.9,0.999]")
    for name in ("eps", "weight_decay", "momentum"):
        value = optimizer.get(name, 0)
        if isinstance(value, int | float) and not 0 <= value < math.inf:
            message = f"is {value}; allowed is a number >= 0"
            yield Problem(f"optimizer.{name}", message, f"optimizer.{name}=0")


def _rates(betas: object) -> list[float]:
    numbers = betas if isinstance(betas, list | tuple) else []
    return [b for b in numbers if isinstance(b, int | float) and 0 <= b < 1]
