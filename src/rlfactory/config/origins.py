"""What a plan says of where its values come from: the nearest published run, what was typed."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rlfactory.config.frozen import differences, format_value
from rlfactory.config.memory.model_parts import parts_of
from rlfactory.config.options import options
from rlfactory.config.plan import Plan
from rlfactory.config.schema.signature import trait
from rlfactory.model.pipelines.families import BY_TARGET

Config = Mapping[str, Any]
SHOWN = 6
"""Departures that a note lists."""
GROUPS = ("schedule", "window", "times", "advantage", "dynamics", "regularizer", "precision")
KEYS = (
    *("model.finetune", "model.size", "model.guidance", "model.embedded_guidance"),
    *("model.lora_rank", "schedule.steps", "dynamics.noise_level", "algo.clip_range"),
    *("optimizer.lr", "prompts_per_iteration", "group_size", "updates_per_iteration"),
    *("iterations", "times.count"),
)
FULL_SIZE = 100e6
"""Parameters of a network from which on it is no small model."""


def nearest_published(choices: Mapping[str, str]) -> tuple[list[str], bool] | None:
    """What to type for the published run nearest to a plan, and whether it is of this pair.

    The preset chosen, or what the recipe's file names: `# published: peer/NAME KEY=VALUE...`, or
    `# nearest: ...` where nobody has published the algorithm for the model.
    """
    chosen = choices.get("experiment", "")
    if chosen.startswith("peer/"):
        return [f"experiment={chosen}"], True
    path = options("recipe").get(choices.get("recipe", ""))
    text = "" if path is None else path.read_text(encoding="utf-8")
    found = re.search(r"^# (published|nearest): (.+)$", text, flags=re.M)
    if found is None:
        return None
    return f"experiment={found[2]}".split(), found[1] == "published"


def departures(
    config: Config, choices: Mapping[str, str], published: Config, their: Mapping[str, str]
) -> str:
    """What differs from a published run, theirs in brackets; empty if nothing of weight does."""
    theirs, ours = {**published, "choices": their}, {**config, "choices": choices}
    differing = {key: (new, old) for key, old, new in differences(theirs, ours)}
    unread = {*GROUPS} - {*choices}
    keys = [k for k in (*GROUPS, *KEYS) if k in differing and k.partition(".")[0] not in unread]
    found = ["{}={} ({})".format(key, *map(format_value, differing[key])) for key in keys]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{', '.join(found[:SHOWN])}{more}"


def origin_notes(plan: Plan, typed: Collection[str]) -> Iterator[str]:
    """Notes on options that were chosen and do not suit what they meet.

    Args:
        typed: the keys of the command line.
    """
    if "dynamics" in typed and _is_noise_wasted(plan.config):
        yield "these dynamics add noise that teaches this algorithm nothing: dynamics=ode has none"
    path, option = str(plan.config["model"].get("path")), plan.choices["model"]
    family = BY_TARGET.get(str(plan.config["model"]["_target_"]))
    if "model.path" in typed and family and option == family.small and _is_full_size(path):
        yield (
            f"{path} is of full size, and model={option} has the settings of a small one:"
            f" model={family.option} model.path={path}"
        )


def _is_noise_wasted(config: Config) -> bool:
    """Whether final samples alone are learned from, and sampling is stochastic."""
    by_final_samples = trait(config["algo"], "requires") == "forward_process"
    return by_final_samples and bool(trait(config["dynamics"], "has_log_prob"))


def _is_full_size(path: str) -> bool:
    """Whether the largest network of a model is no small one, as far as is known."""
    parts = parts_of(path) or {}
    return max((part.parameters for part in parts.values()), default=0) > FULL_SIZE
