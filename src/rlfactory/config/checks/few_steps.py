"""Rules and notes on models that were distilled to few sampling steps (docs/few_steps.md)."""

from collections.abc import Iterator

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.problems import Problem
from rlfactory.model.pipelines.scheduler_config import distilled_steps


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
    """What a run on such a model departs from, and what is sound on it."""
    steps = steps_of(config, traits)
    if steps is None or traits["algo"].get("requires") != "transitions":
        return
    yield (
        f"the model was distilled to {steps} steps: sound are the algorithms on its own sampling"
        " steps (grpo, grpo_guard, flow_dppo, branch_grpo, ddpo, ddpo_sf), since their ratio is"
        " that of the steps themselves; nft, awm and vgrpo are not"
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
