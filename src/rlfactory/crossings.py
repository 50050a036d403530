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


def regularizer_fits_algorithm(config: Config, traits: Traits) -> Iterator[Problem]:
    """Divergences of steps need an algorithm that takes steps, those of tokens one on tokens."""
    needs, algo = traits["regularizer"].get("needs"), traits["algo"].get("needs")
    if needs != "nothing" and (needs == "tokens") != (algo == "tokens"):
        remedy = "regularizer=kl_token" if algo == "tokens" else "regularizer=kl_v"
        yield Problem("regularizer", "this divergence is of another kind of model", remedy)
    elif needs == "transitions" and algo != "transitions":
        message = "this divergence compares sampling steps, and this algorithm keeps none"
        yield Problem("regularizer", message, "regularizer=kl_v")


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
    stop, evaluation = config["stop"], config["evaluation"]
    if (stop["kl"], stop["reward"]) != (None, None) and not evaluation["every"]:
        yield "the best checkpoint is looked for at evaluations: evaluation.every=10 has some"


def groups_have_members(config: Config, traits: Traits) -> Iterator[Problem]:
    """An advantage relative to a group of one is always zero."""
    by_group = config["algo"].get("baseline") in ("group", "rloo")
    if (traits["algo"].get("grouped") or by_group) and config.get("group_size") == 1:
        message = "is 1, but advantages compare the samples of a group; allowed are 2 or more"
        yield Problem("group_size", message, "group_size=12")


def samples_differ(config: Config, traits: Traits) -> Iterator[Problem]:
    """Samples that begin alike differ by the noise of stochastic steps alone."""
    if config["start_noise"] == "group" and traits["algo"].get("needs") != "transitions":
        message = "is group, but without stochastic steps all samples of a prompt would be the same"
        yield Problem("start_noise", message, "start_noise=own")


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
    high = window.get("high") or steps
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
    if window.get("low", 0) >= steps:
        message = f"is {window['low']}, but steps are 0 to {steps - 1}"
        yield Problem("window.low", message, "window.low=0")
    elif high > steps:
        message = f"is {high}, but there are {steps} steps"
        yield Problem("window.high", message, f"window.high={steps}")
    elif window.get("size", 1) > high - window.get("low", 0):
        room = high - window.get("low", 0)
        message = f"is {window['size']}, but steps {window.get('low', 0)} to {high - 1} are {room}"
        yield Problem("window.size", message, f"window.size={max(room, 1)}")


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
    regularizer_fits_algorithm: ("regularizer._target_", "algo._target_"),
    divergence_teaches: ("regularizer",),
    groups_have_members: ("algo._target_", "group_size"),
    samples_differ: ("start_noise", "algo._target_"),
    updates_have_samples: ("prompts_per_iteration", "group_size", "updates_per_iteration"),
    window_within_steps: ("algo._target_", "schedule.steps", "window"),
    last_step_has_noise: ("algo._target_", "schedule.steps", "window", "dynamics", "regularizer"),
    reward_judges_what_is_made: ("reward._target_", "model._target_"),
    prompts_bring_metadata: ("reward._target_", "prompts._target_"),
    prompt_files_are_readable: ("prompts",),
    model_folders_hold_models: ("model.path", "model.value_path", "model._target_"),
    optimizer_moves: ("optimizer",),
}
