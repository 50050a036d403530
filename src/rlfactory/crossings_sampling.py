"""Rules between a schedule, a window, the dynamics and who uses their steps; see `crossings`."""

from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory.problems import Problem

Config = Mapping[str, Any]
Traits = Mapping[str, Mapping[str, Any]]


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
    if any(_divides_by_std(node) for node in _regularizers(config)):
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


def _regularizers(config: Config) -> Iterator[Mapping[str, Any]]:
    """The regularizer and, of a sum, its terms."""
    node = config["regularizer"]
    terms = node.get("terms")
    yield node
    yield from terms.values() if isinstance(terms, Mapping) else ()


def _divides_by_std(node: Mapping[str, Any]) -> bool:
    return str(node.get("_target_")).endswith((".KLGaussian", ".KLFlowGRPO"))
