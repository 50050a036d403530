"""The tables of docs/reference/defaults.md: what the recipes of full-size models bring."""

import re

from matrix import algorithms, data
from peers import line, regularizer, shown, tuned

from rlfactory.config.checks.warnings import nearest_published
from rlfactory.config.options import options
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.plan import Plan

MODELS = (
    *("sd14", "sd35", "flux", "flux_schnell", "qwen_image", "z_image", "z_image_turbo"),
    *("qwen_image_21", "qwen_image_edit"),
    *("flux_kontext", "flux2_klein", "flux2_dev", "sana", "krea2", "lumina2"),
    *("ltx", "wan", "wan22", "wan_i2v"),
    *("flux3_klein", "flux3_klein_distilled"),
)
"""Of full size; sd15 has sd14's recipes."""


def plan_of(model: str, algorithm: str) -> Plan:
    """The plan on a GPU of 80 GB by the pair's own recipe."""
    pair = (f"model={model}", f"algo={algorithm}", f"recipe={model}_{algorithm}")
    gpu = ("hardware.device=cuda", "hardware.memory_gb=80")
    return plan_from_words(*pair, *data(model, algorithm), *gpu)


def settings(plan: Plan) -> dict[str, str]:
    """The cells of a plan's row."""
    config = plan.config
    model, evaluation, schedule = config["model"], config["evaluation"], config["schedule"]
    size, steps = evaluation["size"] or model["size"], evaluation["steps"] or schedule["steps"]
    noise = config["dynamics"].get("noise_level", config["dynamics"].get("eta"))
    learned = "window" if "window" in plan.choices else "times"
    count = config["times"]["count"] if learned == "times" else None
    clip = config["algo"].get("clip_range")
    memory = re.search(r"about (\d+)", plan.derived["peak memory"])
    return {
        "pixels": f"{model['size']}" + (f", {size}" if size != model["size"] else ""),
        "steps": f"{schedule['steps']}, {steps}",
        "guidance": _guidance(plan),
        "schedule, dynamics": f"{plan.choices['schedule']}, {plan.choices['dynamics']}"
        + (f" {shown(noise)}" if noise is not None else ""),
        "learned from": f"{plan.choices[learned]}" + (f" × {count}" if count else ""),
        "clip": shown(clip) if "clip_range" in config["algo"] else "–",
        "advantage": plan.choices["advantage"],
        "regularizer": regularizer(plan),
        "learning rate": shown(config["optimizer"]["lr"]),
        "trained": tuned(plan),
        "prompts × samples": f"{config['prompts_per_iteration']} × {config['group_size']}",
        "updates": str(config["updates_per_iteration"]),
        "iterations": str(config["iterations"]),
        "batches": f"{config['micro_batch']}, {config['sample_batch']}",
        "peak, GiB": memory[1] if memory else "–",
        "source": _source(plan),
    }


def _guidance(plan: Plan) -> str:
    model = plan.config["model"]
    if model.get("embedded_guidance"):
        return f"{shown(model['embedded_guidance'])}, an input"
    return shown(model["guidance"]) if model["guidance"] > 1 else "none"


def _source(plan: Plan) -> str:
    nearest = nearest_published(plan.choices)
    if nearest is None:
        return "–"
    (experiment, *_), published = nearest
    preset = f"`{experiment.removeprefix('experiment=')}`"
    return preset if published else f"unpublished; nearest {preset}"


def by_algorithm(model: str) -> str:
    """A row an algorithm that has a recipe with this model, with the model's own reward."""
    names = [name for name in algorithms() if f"{model}_{name}" in options("recipe")]
    rows = {name: settings(plan_of(model, name)) for name in names}
    columns = [*next(iter(rows.values()))]
    lines = [line(["`algo`", *columns]), line(["---"] * (len(columns) + 1))]
    lines += [line([f"`{name}`", *cells.values()]) for name, cells in rows.items()]
    return "\n".join(lines)


def tables() -> str:
    """A table for each model."""
    return "\n\n".join(f"## `model={model}`\n\n{by_algorithm(model)}" for model in MODELS)
