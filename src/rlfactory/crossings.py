"""Choices that each make sense and together do not: one rule a function, in order of report.

A rule takes the configuration and the traits of its components (literals of their classes, read
from source) and yields the problems that it sees.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlfactory.crossings_sampling import (
    dynamics_fit_model,
    last_step_has_noise,
    schedule_fits_model,
)
from rlfactory.problems import Problem

Config = Mapping[str, Any]
Traits = Mapping[str, Mapping[str, Any]]
Rule = Callable[[Config, Traits], Iterator[Problem]]


def algorithm_fits_model(config: Config, traits: Traits) -> Iterator[Problem]:
    """Images are made by processes with noise, texts by tokens."""
    wants_tokens = traits["algo"].get("needs") == "tokens"
    has_tokens = traits["model"].get("process") == "tokens"
    if wants_tokens != has_tokens:
        made = "tokens" if has_tokens else "images"
        yield Problem("algo", f"this algorithm can't train a model that makes {made}")


def stepwise_needs_likelihood(config: Config, traits: Traits) -> Iterator[Problem]:
    """Policy gradients on steps need steps that have a likelihood."""
    if traits["algo"].get("needs") == "transitions" and not traits["dynamics"].get("log_prob"):
        message = "this algorithm needs the likelihood of each step, and these dynamics have none"
        yield Problem("dynamics", message, "dynamics=flow_sde")


def _penalties(config: Config, traits: Traits) -> Iterator[tuple[str, Config, Mapping[str, Any]]]:
    """Key, configuration and traits of the regularizer or, of a sum, of each of its terms."""
    node, ours = config["regularizer"], traits["regularizer"]
    if ours.get("needs") != "terms":
        yield "regularizer", node, ours
        return
    terms = node.get("terms")
    for name, term in terms.items() if isinstance(terms, Mapping) else ():
        key = f"regularizer.terms.{name}"
        yield key, term, traits.get(key, {})


def regularizer_fits_algorithm(config: Config, traits: Traits) -> Iterator[Problem]:
    """Divergences of steps need an algorithm that takes steps, those of tokens one on tokens."""
    algo = traits["algo"].get("needs")
    for key, _, ours in _penalties(config, traits):
        needs = ours.get("needs")
        if needs != "nothing" and (needs == "tokens") != (algo == "tokens"):
            remedy = "regularizer=kl_token" if algo == "tokens" else "regularizer=kl_v"
            message = "this divergence is of another kind of model"
            yield Problem(key, message, remedy if key == "regularizer" else "")
        elif needs == "transitions" and algo != "transitions":
            message = "this divergence compares sampling steps, and this algorithm keeps none"
            yield Problem(key, message, "regularizer=kl_v" if key == "regularizer" else "")


def divergence_fits_process(config: Config, traits: Traits) -> Iterator[Problem]:
    """A divergence scaled by the noise of flow steps is one of flow models."""
    theirs = traits["model"].get("process")
    for key, _, ours in _penalties(config, traits):
        process = ours.get("process")
        if process and theirs and theirs != "tokens" and process != theirs:
            message = f"this divergence is for a {process} process, the model's is {theirs}"
            yield Problem(key, message, "regularizer=kl_v" if key == "regularizer" else "")


def behaviour_has_surrogate(config: Config, traits: Traits) -> Iterator[Problem]:
    """Only an algorithm that has a surrogate of the likelihood can compare two of them."""
    for key, node, _ in _penalties(config, traits):
        if node.get("compare") == "surrogate" and not traits["algo"].get("surrogate"):
            message = "is surrogate, and this algorithm has none; allowed is prediction"
            yield Problem(f"{key}.compare", message, f"{key}.compare=prediction")


_MEASURED = ("approx", "coefficient", "sequence")


def terms_add_up(config: Config, traits: Traits) -> Iterator[Problem]:
    """A sum has terms, each a penalty on images, under a name of its own."""
    if traits["regularizer"].get("needs") != "terms":
        return
    if not config["regularizer"].get("terms"):
        message = "is empty, so nothing would be added; regularizer=none says that"
        yield Problem("regularizer.terms", message)
    for key, _, ours in _penalties(config, traits):
        name = key.rpartition(".")[2]
        if ours.get("needs") in ("nothing", "terms", "tokens"):
            yield Problem(key, "is no divergence of images; a sum's terms are kl_v, kl_x and such")
        elif name in _MEASURED:
            yield Problem(key, f"kl/{name} is another metric already; the term needs another name")


def divergence_teaches(config: Config, traits: Traits) -> Iterator[Problem]:
    """Differentiated as it stands, k1 has no gradient in expectation."""
    node = config["regularizer"]
    if node.get("placement") == "loss" and node.get("estimator") == "k1":
        message = "is k1, whose gradient in a loss is zero in expectation; allowed are exact and k2"
        yield Problem("regularizer.estimator", message, "regularizer.estimator=exact")


def cautions(config: Config, traits: Traits) -> Iterator[str]:
    """What is allowed and seldom meant."""
    node, dynamics = config["regularizer"], config["dynamics"]
    if node.get("placement") == "loss" and node.get("estimator") == "k3":
        yield "k3 in the loss follows the forward divergence; exact or k2 follow the one meant"
    truncated = dynamics.get("top_k", 0) > 0 or dynamics.get("top_p", 1) < 1
    if node.get("placement") == "reward" and truncated:
        yield "with top_k or top_p a sampled KL can turn negative and pay the policy for it"
    yield from _unheld(config, traits)
    stop, evaluation = config["stop"], config["evaluation"]
    names = [key.rpartition(".")[2] for key, *_ in _penalties(config, traits)]
    if stop["kl"] is not None and not {"regularizer", "reference"} & {*names}:
        yield "stop.kl goes by kl/reference, and no term of this sum is named reference"
    if (stop["kl"], stop["reward"]) != (None, None) and not evaluation["every"]:
        yield "the best checkpoint is looked for at evaluations: evaluation.every=10 has some"


def _unheld(config: Config, traits: Traits) -> Iterator[str]:
    """Whether nothing keeps AWM near where it has just been."""
    algo = config.get("algo", {})
    unclipped = "clip_range" in algo and algo["clip_range"] is None
    if not (unclipped and str(algo.get("_target_")).endswith(".AWM")):
        return
    held = (
        (node.get("reference") == "old" or "compare" in node)
        and node["coefficient"].get("value") != 0
        for _, node, _ in _penalties(config, traits)
    )
    if not any(held):
        yield (
            "AWM with neither a clip_range nor a penalty toward the old policy rose and then"
            " wandered in the prototype: algo.clip_range=1 or regularizer=kl_ema holds it"
        )


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


def branches_grow(config: Config, traits: Traits) -> Iterator[Problem]:
    """Samples that begin alike differ by stochastic steps alone, and fill a group."""
    branches, size, at = config["branches"], config["group_size"], config["branch_at"]
    if (branches, at) == (1, "window"):
        return
    if traits["algo"].get("needs") != "transitions":
        message = "is set, but without stochastic steps samples that begin alike end alike"
        yield Problem("branches", message, "branches=1 branch_at=window")
        return
    slots = _items_per_sample(config) if at == "step" else 1
    if size % (branches * slots):
        each = f" at each of {slots} steps" if at == "step" else ""
        message = f"is {branches}{each}, which does not divide a group of {size}"
        yield Problem(
            "branches", message, f"group_size={-(-size // (branches * slots)) * branches * slots}"
        )
    elif at == "step" and branches == 1 and slots == size:
        message = "is 1, but at a step of its own each sample would compare with none"
        yield Problem("branches", message, "branches=4")


def _items_per_sample(config: Config) -> int:
    """How many steps a window has."""
    window, steps = config["window"], int(config["schedule"]["steps"])
    if "steps" in window:
        return len(window["steps"])
    return int(window.get("size", steps - window.get("skip_last", 0)))


def derived_for_dynamics(config: Config, traits: Traits) -> Iterator[Problem]:
    """Some ratios are worked out for one kind of step."""
    only = traits["algo"].get("only_dynamics")
    if only and not str(config["dynamics"]["_target_"]).endswith(f".{only}"):
        message = "this algorithm's ratio is worked out for the steps of flow_sde alone"
        yield Problem("dynamics", message, "dynamics=flow_sde")


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
        divisors = [n for n in range(1, samples + 1) if samples % n == 0]
        near = sorted(sorted(divisors, key=lambda n: abs(n - updates))[:3])
        message = f"is {updates}, which does not divide the {samples} samples of an iteration"
        yield Problem(
            "updates_per_iteration",
            f"{message}; nearest are {', '.join(map(str, near))}",
            f"updates_per_iteration={near[0]}",
        )


def window_within_steps(config: Config, traits: Traits) -> Iterator[Problem]:
    """A window holds at least one step, and none that is not sampled."""
    if traits["algo"].get("needs") != "transitions":
        return
    steps, window = config["schedule"]["steps"], config["window"]
    low = window.get("low", 0)
    high = window.get("high") or max(steps - traits["window"].get("margin", 0), 1)
    outside = [step for step in _numbers(window.get("steps")) if step >= steps]
    if outside:
        inside = ",".join(str(step) for step in window["steps"] if step < steps)
        message = f"{outside} lie outside the {steps} steps, 0 to {steps - 1}"
        yield Problem("window.steps", message, f"window.steps=[{inside}]")
    if "steps" in window and not window["steps"]:
        yield Problem("window.steps", "is empty, so nothing would be trained", "window.steps=[0,1]")
    if window.get("skip_last", 0) >= steps:
        message = f"skips {window['skip_last']} of {steps} steps, so nothing would be trained"
        yield Problem("window.skip_last", message, "window.skip_last=1")
    if high > steps:
        message = f"is {high}, but there are {steps} steps"
        yield Problem("window.high", message, f"window.high={steps}")
    elif low >= high:
        message = f"is {low}, but the steps to choose from end at {high - 1}"
        yield Problem("window.low", message, "window.low=0")
    elif window.get("size", 1) > high - low:
        message = f"is {window['size']}, but steps {low} to {high - 1} are {high - low}"
        yield Problem("window.size", message, f"window.size={high - low}")


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


def _numbers(value: object) -> list[int]:
    return [v for v in value if isinstance(v, int)] if isinstance(value, list) else []


def reward_judges_what_is_made(config: Config, traits: Traits) -> Iterator[Problem]:
    """A reward of images scores images."""
    judged, made = traits["reward"].get("media"), traits["model"].get("media")
    if judged and made and judged != made:
        yield Problem("reward", f"this reward judges {judged}, and the model makes {made}")


def prompts_bring_metadata(config: Config, traits: Traits) -> Iterator[Problem]:
    """A reward finds in each prompt what it compares with."""
    wanted, brought = traits["reward"].get("metadata") or (), traits["prompts"].get("metadata")
    path = Path(str(config["prompts"].get("path"))).expanduser()
    if path.suffix == ".txt" and path.is_file():
        brought = ()
    missing = [key for key in wanted if brought is not None and key not in brought]
    if missing:
        message = f"these bring no {', '.join(missing)}, which the reward reads of each prompt"
        yield Problem("prompts", message, "prompts=shapes")


def prompt_files_are_readable(config: Config, traits: Traits) -> Iterator[Problem]:
    """A file of prompts exists, holds something, and is text."""
    if not str(config["prompts"]["_target_"]).endswith("FilePrompts"):
        return
    for name in ("path", "eval_path"):
        value = config["prompts"].get(name)
        fault = _text_fault(Path(value).expanduser()) if isinstance(value, str) else None
        if fault:
            yield Problem(f"prompts.{name}", f"{value} {fault}", f"prompts.{name}=FILE.txt")


def _text_fault(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start})"
    except OSError as error:
        return f"can't be read: {error.strerror}"
    return None if text.strip() else "is empty"


def model_folders_hold_models(config: Config, traits: Traits) -> Iterator[Problem]:
    """A path to a model leads to a folder that diffusers or transformers can open."""
    index = "config.json" if traits["model"].get("media") == "texts" else "model_index.json"
    shipped = Path(__file__).parent / "zoo" / "weights"
    names = sorted(p.parent.name for p in shipped.glob(f"*/{index}"))
    for key in ("path", "value_path"):
        path = config["model"].get(key)
        fault = _model_fault(path, index, names) if isinstance(path, str) else None
        if fault:
            yield Problem(f"model.{key}", f"{path} {fault}", f"model.{key}=zoo:{names[-1]}")


def _model_fault(path: str, index: str, shipped: list[str]) -> str | None:
    folder = Path(path).expanduser()
    if path.startswith("zoo:"):
        known = path.removeprefix("zoo:") in shipped
        return None if known else f"does not ship; these do: {', '.join(shipped)}"
    if folder.is_dir():
        return None if (folder / index).is_file() else f"holds no {index}, so it is no model"
    if path.startswith(("/", ".", "~")) or path.count("/") != 1:
        return "does not exist; allowed are a folder, zoo:NAME or a hub id OWNER/NAME"
    return None


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


# each with the keys that it reads: it is asked only where these are sound by themselves
RULES: Mapping[Rule, tuple[str, ...]] = {
    algorithm_fits_model: ("algo._target_", "model._target_"),
    dynamics_fit_model: ("dynamics._target_", "model._target_"),
    schedule_fits_model: ("schedule._target_", "model._target_"),
    stepwise_needs_likelihood: ("algo._target_", "dynamics._target_"),
    regularizer_fits_algorithm: ("regularizer._target_", "regularizer.terms", "algo._target_"),
    divergence_fits_process: ("regularizer._target_", "regularizer.terms", "model._target_"),
    behaviour_has_surrogate: ("regularizer", "algo._target_"),
    terms_add_up: ("regularizer._target_", "regularizer.terms"),
    divergence_teaches: ("regularizer",),
    groups_have_members: ("algo", "advantage", "group_size"),
    weights_weigh: ("advantage.weights",),
    buffers_fill: ("advantage",),
    averages_have_time: ("ema", "old"),
    branches_grow: ("branches", "branch_at", "group_size", "window", "schedule", "algo._target_"),
    derived_for_dynamics: ("algo._target_", "dynamics._target_"),
    one_update_on_policy: ("algo._target_", "updates_per_iteration", "epochs"),
    samples_stay_whole: ("algo", "micro_batch", "times"),
    updates_have_samples: ("prompts_per_iteration", "group_size", "updates_per_iteration"),
    window_within_steps: ("algo._target_", "schedule.steps", "window"),
    times_within_steps: ("algo._target_", "schedule.steps", "times"),
    last_step_has_noise: ("algo._target_", "schedule.steps", "window", "dynamics", "regularizer"),
    reward_judges_what_is_made: ("reward._target_", "model._target_"),
    prompts_bring_metadata: ("reward._target_", "prompts._target_"),
    prompt_files_are_readable: ("prompts",),
    model_folders_hold_models: ("model.path", "model.value_path", "model._target_"),
    optimizer_moves: ("optimizer",),
}
