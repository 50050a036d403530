"""Warnings about combinations that are allowed and rarely intended."""

from collections.abc import Iterator

from rlfactory.config.checks.base import Config, Traits, penalties
from rlfactory.config.checks.chats import stop_notes, template_notes
from rlfactory.config.checks.prompt_files import known_rows
from rlfactory.config.checks.sampling import few_step_notes
from rlfactory.config.memory.model_parts import published_scheduler
from rlfactory.model.pipelines.families import BY_TARGET
from rlfactory.model.pipelines.local_models import folder_of
from rlfactory.model.pipelines.pipeline_parts import left_out
from rlfactory.model.pipelines.scheduler_config import (
    scheduler_of,
    solver_notes,
    timestep_notes,
)
from rlfactory.utils.text import plural


def cautions(config: Config, traits: Traits) -> Iterator[str]:
    """Notes of a plan on combinations that are allowed and rarely intended."""
    node, dynamics = config["regularizer"], config["dynamics"]
    if node.get("placement") == "loss" and node.get("estimator") == "k3":
        yield "k3 in the loss follows the forward divergence; exact or k2 follow the one meant"
    truncated = dynamics.get("top_k", 0) > 0 or dynamics.get("top_p", 1) < 1
    if node.get("placement") == "reward" and truncated:
        yield "with top_k or top_p a sampled KL can turn negative and pay the policy for it"
    if truncated and traits["algo"].get("samples_from") != "data":
        yield "with top_k or top_p likelihoods are of all tokens, not only of those that are kept"
    yield from stop_notes(config)
    yield from _unstable_awm(config, traits)
    yield from _other_timesteps(config, traits)
    yield from few_step_notes(config, traits)
    yield from _repeated_prompts(config, traits)
    yield from template_notes(config, traits)
    yield from _ignored_by_language_models(config, traits)
    stop, evaluation = config["stop"], config["evaluation"]
    names = [key.rpartition(".")[2] for key, *_ in penalties(config, traits)]
    if stop["kl"] is not None and not {"regularizer", "reference"} & {*names}:
        yield "stop.kl goes by kl/reference, and no term of this sum is named reference"
    elif stop["kl"] is not None and traits["regularizer"].get("requires") == "nothing":
        yield (
            "stop.kl goes by kl/reference, which regularizer=none does not measure; a regularizer"
            " with a coefficient of 0 does"
        )
    if (stop["kl"], stop["reward"]) != (None, None) and not evaluation["every"]:
        yield "the best checkpoint is looked for at evaluations: evaluation.every=10 has some"


def _unstable_awm(config: Config, traits: Traits) -> Iterator[str]:
    """A note if AWM has neither a clip range nor a penalty toward the old policy."""
    algo = config.get("algo", {})
    unclipped = "clip_range" in algo and algo["clip_range"] is None
    if not (unclipped and traits["algo"].get("unstable_unclipped")):
        return
    penalties_to_old = (
        (node.get("reference") == "old" or "compare" in node)
        and node["coefficient"].get("value") != 0
        for _, node, _ in penalties(config, traits)
    )
    if not any(penalties_to_old):
        yield (
            "AWM with neither a clip_range nor a penalty toward the old policy rose and then"
            " wandered in the prototype: algo.clip_range=1 or regularizer=kl_ema holds it"
        )


def _other_timesteps(config: Config, traits: Traits) -> Iterator[str]:
    """Notes where sampling departs from that of the pipeline's scheduler."""
    path, process = config.get("model", {}).get("path"), traits["model"].get("process")
    if not isinstance(path, str):
        return
    folder = folder_of(path)
    family = BY_TARGET.get(str(config["model"].get("_target_")))
    if folder is not None and family and (lost := {*left_out(folder)} & {*family.optional}):
        yield f"{path} has no {' and no '.join(sorted(lost))}: it is loaded without"
    scheduler = scheduler_of(folder) if folder is not None else published_scheduler(path)
    if process == "vp" and folder is not None:
        yield from timestep_notes(scheduler, config["schedule"])
    elif process == "flow":
        yield from solver_notes(scheduler)


def _repeated_prompts(config: Config, traits: Traits) -> Iterator[str]:
    """A note if a file has far fewer prompts than an iteration has groups."""
    is_read = "path" in traits["prompts"].get("prompt_files", ())  # of data sets one row is
    rows = known_rows(config, traits) if is_read else None
    if rows is None:
        return
    column = str(config["prompts"].get("column", "prompt"))
    count = len({str(row.get(column)) for row in rows.rows})
    groups, size = config["prompts_per_iteration"], config["group_size"]
    if not 0 < 2 * count <= groups:
        return
    fitting = (n for n in range(count, 0, -1) if n * size % config["updates_per_iteration"] == 0)
    fix = f"; prompts_per_iteration={n} has none twice" if (n := next(fitting, 0)) else ""
    times = f"each comes up {groups // count} times{fix}"
    yield f"{plural(count, 'prompt')} for {groups} groups an iteration: {times}"


def _ignored_by_language_models(config: Config, traits: Traits) -> Iterator[str]:
    """A note if options that only image models read are set for a language model."""
    if traits["model"].get("process") != "tokens":
        return
    for key in ("compile", "attention"):
        if config["memory"][key]:
            yield f"memory.{key} is for image models: this one does not read it"
