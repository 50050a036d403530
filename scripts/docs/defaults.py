"""Generates the tables of docs/reference/defaults.md: what full-size models bring.

python scripts/docs/defaults.py           # write them into the page
python scripts/docs/defaults.py --check   # exit code 1 if the page is out of date
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from generated import Generated
from matrix import algorithms, data
from peers import line, regularizer, shown, tuned

from rlfactory.config.diff import differences
from rlfactory.config.options import first_comment, options
from rlfactory.config.origins import nearest_published
from rlfactory.config.overrides import compose
from rlfactory.config.plan import Plan, make_plan
from rlfactory.config.problems import PlanError

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "defaults.md"
BEGIN, END = "<!-- tables: python scripts/docs/defaults.py -->", "<!-- end of tables -->"
MODELS = (
    *("sd14", "sd35", "flux", "flux_schnell", "qwen_image", "z_image", "z_image_turbo"),
    *("flux_kontext", "flux2_klein", "flux2_dev", "sana", "wan"),
)
"""Of full size; sd15 has sd14's recipes."""
NEEDS: Mapping[str, tuple[str, ...]] = {
    "combine": ("reward.of=[pickscore,ocr]", "prompts=signs"),
    "image_function": (f"reward.function={DOCS}/notebooks/own_reward.py:warmth",),
    "remote": ("reward.url=http://127.0.0.1:8000",),
    "unifiedreward": ("reward.url=http://127.0.0.1:8000/v1",),
    "geneval2": ("reward.url=http://127.0.0.1:8000/v1", "reward.model=m"),
    "vlm_judge": ("reward.url=http://127.0.0.1:8000/v1", "reward.model=m"),
    "llava_bertscore": ("reward.url=http://127.0.0.1:8000/v1", "reward.model=m"),
}
"""What else must be typed beside a reward."""


@cache
def plan_of(*words: str) -> Plan | None:
    """The plan on a GPU of 80 GB; None if it is refused."""
    composed = compose([*words, "hardware.device=cuda", "hardware.memory_gb=80"])
    try:
        return make_plan(composed.values, composed.choices, composed.problems)
    except PlanError:
        return None


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
    """A row an algorithm, with the model's own reward."""
    plans = {
        name: plan_of(f"model={model}", f"algo={name}", *data(model, name)) for name in algorithms()
    }
    rows = {name: settings(plan) for name, plan in plans.items() if plan is not None}
    columns = [*next(iter(rows.values()))]
    lines = [line(["`algo`", *columns]), line(["---"] * (len(columns) + 1))]
    lines += [line([f"`{name}`", *cells.values()]) for name, cells in rows.items()]
    return "\n".join(lines)


def by_reward() -> str:
    """A row a reward of images: the prompts that it has with each family's own algorithm."""
    lines = [line(["`reward`", "`sd14`, `sd15`", "`sd35`, `flux`, `flux_schnell`"])]
    lines.append(line(["---"] * 3))
    for name in options("reward"):
        words = (f"reward={name}", *NEEDS.get(name, ()))
        found = [plan for model in ("sd14", "sd35") if (plan := plan_of(f"model={model}", *words))]
        if found:
            lines.append(line([f"`{name}`", *(f"`{plan.choices['prompts']}`" for plan in found)]))
    return "\n".join(lines)


def variants() -> str:
    """A row a recipe for a reward of its own: what it changes."""
    lines = [line(["recipe", "what it is", "what it changes"]), line(["---"] * 3)]
    for name, path in options("recipe").items():
        found = _split(name)
        if found is None:
            continue
        model, algo, reward = found
        words = (f"model={model}", f"algo={algo}", f"reward={reward}", *NEEDS.get(reward, ()))
        own, base = plan_of(*words), plan_of(*words, f"recipe={model}_{algo}")
        if own is None or base is None:
            raise ValueError(f"recipe {name} makes no plan")
        before, after = ({**p.config, "choices": p.choices} for p in (base, own))
        changed = differences(before, after)
        shows = ", ".join(f"`{key}={shown(new)}`" for key, _, new in changed)
        lines.append(line([f"`{name}`", first_comment(path), shows]))
    return "\n".join(lines)


def _split(recipe: str) -> tuple[str, str, str] | None:
    """Model, algorithm and reward of a recipe's name; None if it is of no single reward."""
    for algo in sorted(algorithms(), key=len, reverse=True):
        model, found, reward = recipe.partition(f"_{algo}_")
        if found and reward in options("reward"):
            return model, algo, reward
    return None


def tables() -> str:
    """All tables."""
    parts = [f"## `model={model}`\n\n{by_algorithm(model)}" for model in MODELS]
    parts.append(f"## Rewards and their prompts\n\n{by_reward()}")
    parts.append(f"## Rewards with settings of their own\n\n{variants()}")
    return "\n\n".join(parts)


PART = Generated(PAGE, BEGIN, END, tables)

if __name__ == "__main__":
    raise SystemExit(PART.main(__doc__.splitlines()[0]))
