"""Rows of a plan on what a sample is, and on how it is learned from."""

from collections.abc import Mapping

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.evaluation_prompts import evaluation_draws
from rlfactory.model.pipelines.local_models import height_and_width

SHOWN = 60
"""Characters of a system prompt, and of the names of modules."""


def describe_sample(config: Config, traits: Traits) -> str:
    """What is drawn: size, steps and guidance of images; length, temperature and form of texts."""
    model, dynamics = config["model"], config["dynamics"]
    if traits["model"].get("media") == "texts":
        names = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
        given = {n: dynamics[n] for n, off in names.items() if n in dynamics}
        shown = [f"{n} {v:g}" for n, v in given.items() if n == "temperature" or v != names[n]]
        parts = [f"at most {dynamics.get('length', '?')} tokens", *shown]
        roles = {"none": "text prompts as they are", "user": "text prompts as user's messages"}
        role = str(model.get("text_role"))
        parts.append(roles.get(role, "text prompts by the chat template, where there is one"))
        if (system := model.get("system_prompt")) is not None:
            parts.append(f"system prompt {_short(repr(system))}")
        return ", ".join(parts)
    parts = [f"{config['schedule']['steps']} steps"]
    if model.get("size") is not None:
        parts.insert(0, " x ".join(map(str, height_and_width(model["size"]))) + " pixels")
    for name in ("frames", "guidance", "embedded_guidance"):
        if model.get(name) is not None:
            parts.append(f"{name.replace('_', ' ')} {model[name]:g}")
    return ", ".join(parts)


def describe_learning(config: Config) -> str:
    """What is trained, at which learning rate."""
    model, rate = config["model"], f"learning rate {config['optimizer'].get('lr', 0):g}"
    if model.get("finetune") != "lora":
        return f"all weights, {rate}"
    targets = model.get("lora_targets") or "the default modules"
    on = targets if isinstance(targets, str) else _short(", ".join(map(str, targets)))
    return f"LoRA of rank {model['lora_rank']}, alpha {model['lora_alpha']:g} on {on}; {rate}"


def describe_draws(config: Config, traits: Traits) -> str:
    """The samples and passes of one evaluation."""
    draws, evaluation = evaluation_draws(config), config["evaluation"]
    text = f"{draws:,} samples an evaluation, those for the diversity among them"
    if traits["model"].get("media") == "texts":
        return text
    guided = 2 if config["model"].get("guidance", 1) > 1 else 1
    passes = draws * guided * int(evaluation["steps"] or config["schedule"]["steps"])
    size: Mapping[str, object] = {"size": evaluation["size"]} if evaluation["size"] else {}
    at = f" at {size['size']} pixels" if size else ""
    return f"{text}{at}, {passes:,} passes"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
