"""How a sample is drawn: schedule, window, dynamics, branches."""

from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory.crossings.base import Config, Traits, penalties, steps_trained
from rlfactory.problems import Problem


def dynamics_fit_model(config: Config, traits: Traits) -> Iterator[Problem]:
    """A sampler undoes the noise that its model was trained with; None undoes any noise."""
    theirs = traits["model"].get("process")
    ours = traits["dynamics"].get("process", theirs)
    if ours is None and theirs == "tokens":
        message = "these step through noise, and the model makes tokens"
        yield Problem("dynamics", message, "dynamics=token")
    elif ours and theirs and ours != theirs:
        message = f"these are for a {ours} process, the model's is {theirs}"
        yield Problem("dynamics", message, f"dynamics={_sampler(theirs, traits)}")


def _sampler(process: str, traits: Traits) -> str:
    """A choice of dynamics that fits."""
    if process == "tokens":
        return "token"
    if traits["algo"].get("needs") != "transitions":
        return "ode"
    return "ddim" if process == "vp" else "flow_sde"


def schedule_fits_model(config: Config, traits: Traits) -> Iterator[Problem]:
    """Noise levels are those of the model's process; a model of tokens has no use for any."""
    ours, theirs = traits["schedule"].get("process"), traits["model"].get("process")
    if ours and theirs in ("flow", "vp") and ours != theirs:
        remedy = "schedule=leading" if theirs == "vp" else "schedule=uniform"
        message = f"this one is for a {ours} process, the model's is {theirs}"
        yield Problem("schedule", message, remedy)


def stepwise_needs_likelihood(config: Config, traits: Traits) -> Iterator[Problem]:
    """Policy gradients on steps need steps that have a likelihood."""
    if traits["algo"].get("needs") == "transitions" and not traits["dynamics"].get("log_prob"):
        message = "this algorithm needs the likelihood of each step, and these dynamics have none"
        process = traits["model"].get("process", "flow")
        yield Problem("dynamics", message, f"dynamics={_sampler(process, traits)}")


def derived_for_dynamics(config: Config, traits: Traits) -> Iterator[Problem]:
    """Some ratios are worked out for one kind of step; steps without any have their own rule."""
    only, ours = traits["algo"].get("only_dynamics"), traits["dynamics"]
    if not only or not ours.get("log_prob"):
        return
    if not str(config["dynamics"]["_target_"]).endswith(f".{only}"):
        message = "this algorithm's ratio is worked out for the steps of flow_sde alone"
        if traits["model"].get("process") == "vp":
            yield Problem("algo", f"{message}, and the model's process is vp", "algo=ddpo")
        else:
            yield Problem("dynamics", message, "dynamics=flow_sde")


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


def _numbers(value: object) -> list[int]:
    return [v for v in value if isinstance(v, int)] if isinstance(value, list) else []


def last_step_has_noise(config: Config, traits: Traits) -> Iterator[Problem]:
    """A step that is trained has the deviation that its likelihood or divergence divides by."""
    if traits["algo"].get("needs") != "transitions" or not _may_hold_last(config, traits):
        return
    dynamics = config["dynamics"]
    if dynamics.get("final_alpha") == "one" and not dynamics.get("min_std"):
        message = "is one, so the last step has neither noise nor likelihood, and the window has it"
        yield Problem("dynamics.final_alpha", message, "dynamics.final_alpha=first")
    if not traits["dynamics"].get("quiet_end"):
        return
    if dynamics.get("log_prob_of") == "gaussian":
        message = "is gaussian, but the last step has no noise and so no density"
        yield Problem("dynamics.log_prob_of", message, "dynamics.log_prob_of=quadratic")
    if any(_divides_by_std(node) for _, node, _ in penalties(config, traits)):
        message = "divides by the noise of a step, and the window's last has none"
        yield Problem("regularizer", message, "regularizer=kl_v")


def _may_hold_last(config: Config, traits: Traits) -> bool:
    """Whether the window can choose the step that ends at time 0."""
    steps, window, ours = config["schedule"]["steps"], config["window"], traits["window"]
    if "steps" in window:
        return steps - 1 in window["steps"]
    if "skip_last" in window:
        return bool(window["skip_last"] == 0)
    high = window.get("high") or steps - ours.get("margin", 0)
    if ours.get("noisier_half") and not window.get("high"):
        high = max(steps // 2, window.get("low", 0) + window.get("size", 1))
    return bool(high >= steps)


def _divides_by_std(node: Mapping[str, Any]) -> bool:
    return str(node.get("_target_")).endswith((".KLGaussian", ".KLFlowGRPO"))


def branches_grow(config: Config, traits: Traits) -> Iterator[Problem]:
    """Samples that begin alike differ by stochastic steps alone, and fill a group."""
    branches, size, at = config["branches"], config["group_size"], config["branch_at"]
    if (branches, at) == (1, "window"):
        return
    if traits["algo"].get("needs") != "transitions":
        message = "is set, but without stochastic steps samples that begin alike end alike"
        yield Problem("branches", message, "branches=1 branch_at=window")
        return
    slots = steps_trained(config) if at == "step" else 1
    if size % (branches * slots):
        each = f" at each of {slots} steps" if at == "step" else ""
        message = f"is {branches}{each}, which does not divide a group of {size}"
        yield Problem(
            "branches", message, f"group_size={-(-size // (branches * slots)) * branches * slots}"
        )
    elif at == "step" and branches == 1 and slots == size:
        message = "is 1, but at a step of its own each sample would compare with none"
        yield Problem("branches", message, "branches=4")
