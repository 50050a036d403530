"""Rules on sampling: schedule, window, dynamics, branches, trees of trajectories (BranchGRPO), and
models that sample in few steps.
"""

from collections.abc import Iterator

from rlfactory.config.checks.base import (
    Config,
    Traits,
    is_algorithm_mismatched,
    only,
    penalties,
    stochastic_steps,
)
from rlfactory.config.nfe import of_algo
from rlfactory.config.problems import Problem, untaken_key
from rlfactory.model.pipelines.scheduler_config import distilled_steps


def require_matching_dynamics(config: Config, traits: Traits) -> Iterator[Problem]:
    """Dynamics are for the model's noise process; those without a `process` fit every process."""
    model_process = traits["model"].get("process")
    own_process = traits["dynamics"].get("process", model_process)
    if is_algorithm_mismatched(traits) and (own_process == "tokens") != (model_process == "tokens"):
        return  # they follow from the algorithm, which has a problem of its own
    if own_process is None and model_process == "tokens":
        message = "these step through noise, and the model makes tokens"
        yield Problem("dynamics", message, "dynamics=token")
    elif own_process and model_process and own_process != model_process:
        message = f"these are for a {own_process} process, the model's is {model_process}"
        yield Problem("dynamics", message, f"dynamics={_fitting(model_process, traits)}")
    elif model_process == "tokens" and "length" not in config["dynamics"]:
        yield untaken_key("dynamics.length", config["dynamics"]["_target_"])


def _fitting(process: str, traits: Traits) -> str:
    """An option of `dynamics` that fits the model's process and the algorithm."""
    if process == "tokens":
        return "token"
    if traits["algo"].get("requires") != "transitions":
        return "ode"
    return "ddim" if process == "vp" else "flow_sde"


def require_matching_schedule(config: Config, traits: Traits) -> Iterator[Problem]:
    """Noise levels are those of the model's process; models of tokens ignore them."""
    own_process, model_process = traits["schedule"].get("process"), traits["model"].get("process")
    if own_process and model_process in ("flow", "vp") and own_process != model_process:
        remedy = "schedule=leading" if model_process == "vp" else "schedule=uniform"
        message = f"this one is for a {own_process} process, the model's is {model_process}"
        yield Problem("schedule", message, remedy)


def require_step_likelihood(config: Config, traits: Traits) -> Iterator[Problem]:
    """Policy gradients on sampling steps need steps with a likelihood, of the form they are for."""
    algo, dynamics, process = traits["algo"], traits["dynamics"], traits["model"].get("process")
    required = algo.get("required_dynamics")
    if not dynamics.get("has_log_prob"):
        if algo.get("requires") == "transitions":
            message = "this algorithm needs each step's likelihood, and these dynamics have none"
            yield Problem("dynamics", message, f"dynamics={_fitting(process or 'flow', traits)}")
    elif required and dynamics.get("step_form") != required:
        message = f"this algorithm's ratio is derived for the steps of {required} alone"
        if process == "vp":
            yield Problem("algo", f"{message}, and the model's process is vp", "algo=ddpo")
        else:
            yield Problem("dynamics", message, f"dynamics={required}")


def require_pure_noise_at_the_start(config: Config, traits: Traits) -> Iterator[Problem]:
    """Flow-SDE takes no step from a noise level just below 1, where it adds tens of times the noise
    that is there; from 1 itself it does, by a formula of its own.
    """
    if config["schedule"].get("kind") != "dpm" or traits["dynamics"].get("step_form") != "flow_sde":
        return
    window = config["window"] if traits["algo"].get("requires") == "transitions" else {}
    steps = [step for step in window.get("steps") or () if isinstance(step, int)]
    if min(steps, default=window.get("low", 0)) == 0:
        message = (
            "is dpm, whose first noise level is just below 1: the noise of Flow-SDE's step from"
            " there has no bound; uniform has the same levels from 1 on"
        )
        yield Problem("schedule.kind", message, "schedule=uniform")


def require_noise_in_last_step(config: Config, traits: Traits) -> Iterator[Problem]:
    """A trained step has noise, since its likelihood or divergence divides by the deviation."""
    if traits["algo"].get("requires") != "transitions" or not _may_include_last(config, traits):
        return
    dynamics = config["dynamics"]
    silent = "so the last step has neither noise nor likelihood, and the window has it"
    is_noisy = "final_alpha" not in dynamics or dynamics.get("min_std")
    if not is_noisy and dynamics["final_alpha"] == "one":
        yield Problem("dynamics.final_alpha", f"is one, {silent}", "dynamics.final_alpha=first")
    elif not is_noisy and config["schedule"].get("steps_offset") == 0:
        message = f"is 0, where sampling ends, {silent}"
        yield Problem("schedule.steps_offset", message, "schedule.steps_offset=1")
    if not traits["dynamics"].get("last_step_is_deterministic"):
        return
    if dynamics.get("log_prob_of") == "gaussian":
        message = "is gaussian, but the last step has no noise and so no density"
        yield Problem("dynamics.log_prob_of", message, "dynamics.log_prob_of=quadratic")
    if any(own.get("divides_by_step_std") for _, _, own in penalties(config, traits)):
        message = "divides by the noise of a step, and the window's last has none"
        yield Problem("regularizer", message, "regularizer=kl_v")
    if of_algo(config, traits, "divides_by_step_std"):
        message = "take the window's last step without noise, by which this algorithm divides"
        yield Problem("dynamics", message, "dynamics=flow_sde")


def _may_include_last(config: Config, traits: Traits) -> bool:
    """Whether the window, or a tree's splits, can include the last step, which ends at time 0."""
    steps, window = config["schedule"]["steps"], config["window"]
    if config["branch_at"] == "tree" and steps - 1 in config["tree"]["splits"]:
        return True
    if "steps" in window:
        return steps - 1 in window["steps"]
    if "skip_last" in window:
        return bool(window["skip_last"] == 0)
    high = window.get("high") or steps - traits["window"].get("margin", 0)
    if traits["window"].get("noisier_half") and not window.get("high"):
        high = max(steps // 2, window.get("low", 0) + window.get("size", 1))
    return bool(high >= steps)


def require_branches_fill_groups(config: Config, traits: Traits) -> Iterator[Problem]:
    """Branches need stochastic steps to differ, and their number divides a group."""
    branches, size, at = config["branches"], config["group_size"], config["branch_at"]
    if traits["algo"].get("requires") != "transitions":
        reason = "without stochastic steps samples of one start are the same"
        yield from only(config, {"branches": 1, "branch_at": "window"}, reason)
        return
    slots = len(stochastic_steps(config)) if at == "step" else 1
    if size % (branches * slots):
        each = f" at each of {slots} steps" if at == "step" else ""
        message = f"is {branches}{each}, which does not divide a group of {size}"
        unit = branches * slots
        yield Problem("branches", message, f"group_size={-(-size // unit) * unit}")
    elif at == "step" and branches == 1 and slots == size:
        message = "is 1, so each sample would have a step of its own and nothing to compare with"
        yield Problem("branches", message, "branches=4")


def require_tree_algorithm(config: Config, traits: Traits) -> Iterator[Problem]:
    """Trees are for the algorithm that trains each edge once; its advantages compare the edges of a
    depth, and keep all.
    """
    if not traits["algo"].get("trains_tree"):
        if config["branch_at"] == "tree":
            message = "is tree, and this algorithm would train steps that samples share repeatedly"
            yield Problem("branch_at", message, "branch_at=window")
        return
    yield from only(config, {"branch_at": "tree"}, "this algorithm needs a tree")
    if not traits["advantage"].get("grouped"):
        message = "this one compares with other iterations, but edges are compared by depth"
        yield Problem("advantage", message, "advantage=group")
    else:
        reason = "edges have advantages of their own, not whole samples"
        yield from only(config, {"advantage.zero_variance": "keep"}, reason)


def steps_of(config: Config, traits: Traits) -> int | None:
    """The steps that the run's model was distilled to; None: it was not, or is trained as if so."""
    given, path = config.get("distilled_to", "auto"), config.get("model", {}).get("path")
    if given != "auto":
        return int(given) if given is not None else None
    return distilled_steps(path) if isinstance(path, str) else None


def require_sound_on_few_steps(config: Config, traits: Traits) -> Iterator[Problem]:
    """The flow-matching loss is not for a model that was distilled to few steps."""
    steps = steps_of(config, traits)
    if steps is not None and traits["algo"].get("requires") == "forward_process":
        message = (
            f"learns by the flow-matching loss, and the model was distilled to {steps} steps, which"
            " that loss undoes: samples blur as it trains (docs/few_steps.md). Algorithms on its"
            " own sampling steps are sound; distilled_to=null trains it all the same"
        )
        own = ["algo=grpo", f"schedule.steps={steps}", f"evaluation.steps={steps}"]
        own += ["dynamics=cps"] if traits["model"].get("process") == "flow" else []
        has_own = "guidance" in config["model"] and "embedded_guidance" not in config["model"]
        own += ["model.guidance=1"] if has_own else []
        yield Problem("algo", message, instead=tuple(own))


def few_step_notes(config: Config, traits: Traits) -> Iterator[str]:
    """Notes on how a run on such a model departs from it, and on what is sound on it."""
    steps = steps_of(config, traits)
    if steps is None or traits["algo"].get("requires") != "transitions":
        return
    yield (
        f"the model was distilled to {steps} steps: sound are algorithms on its own sampling steps,"
        " as this one, since their ratio is that of the steps themselves (docs/few_steps.md)"
    )
    taken, evaluated = config["schedule"]["steps"], config["evaluation"]["steps"]
    for key, value in (("schedule.steps", taken), ("evaluation.steps", evaluated or taken)):
        if value != steps:
            yield f"{key}={value} is not what the model was distilled to: {key}={steps}"
    if (config["model"].get("guidance") or 0) > 1:
        yield "the model was distilled to sample without guidance: model.guidance=1"
    if traits["model"].get("process") == "flow" and traits["dynamics"].get("step_form") != "cps":
        yield (
            "few steps of this sampler leave noise that the model was not distilled to remove:"
            " dynamics=cps keeps each step at its noise level (RTDMD samples so)"
        )
