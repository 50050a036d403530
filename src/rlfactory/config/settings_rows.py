"""Rows of a plan on what a sample is, how it is learned from, and what an evaluation draws."""

from textwrap import shorten

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.evaluation_prompts import evaluation_draws
from rlfactory.model.pipelines.local_models import height_and_width

SHOWN = 60
"""Characters of a system prompt, and of the names of modules."""
ROLES = {"none": "text prompts as they are", "user": "text prompts as user's messages"}


def describe_sample(config: Config, traits: Traits) -> str:
    """What is drawn: size, steps and guidance of images; length, temperature and form of texts."""
    model, dynamics = config["model"], config["dynamics"]
    if traits["model"].get("media") != "texts":
        edges = [] if model.get("size") is None else height_and_width(model["size"])
        size = [" x ".join(map(str, edges)) + " pixels"] if edges else []
        names = ("frames", "guidance", "embedded_guidance")
        given = {name: model[name] for name in names if model.get(name) is not None}
        options = [f"{name.replace('_', ' ')} {value:g}" for name, value in given.items()]
        return ", ".join([*size, f"{config['schedule']['steps']} steps", *options])
    neutral = {"temperature": None, "top_p": 1, "top_k": 0}
    drawn = [f"{n} {dynamics[n]:g}" for n, v in neutral.items() if dynamics.get(n, v) != v]
    role = ROLES.get(model.get("text_role"), "text prompts by the chat template if there is one")
    parts = [f"at most {dynamics.get('length', '?')} tokens", *drawn, role]
    if system := model.get("system_prompt"):
        parts.append(f"system prompt {shorten(system, SHOWN, placeholder='...')!r}")
    return ", ".join(parts)


def describe_learning(config: Config) -> str:
    """What is trained, at which learning rate."""
    model, rate = config["model"], config["optimizer"].get("lr")
    if model.get("finetune") != "lora":
        trained = "all weights"
    else:
        targets = model.get("lora_targets") or "the default modules"
        named = (
            targets
            if isinstance(targets, str)
            else shorten(", ".join(map(str, targets)), SHOWN, placeholder="...")
        )
        trained = f"LoRA of rank {model['lora_rank']}, alpha {model['lora_alpha']:g} on {named}"
    return trained if rate is None else f"{trained}; learning rate {rate:g}"


def describe_draws(config: Config, traits: Traits) -> str:
    """The samples and passes of one evaluation."""
    if traits["reward"].get("gives_scores") is False and not config["eval_rewards"]["of"]:
        return "the losses of their rows, and no samples"
    draws, evaluation = evaluation_draws(config), config["evaluation"]
    text = f"{draws:,} samples an evaluation, with those for the diversity"
    if traits["model"].get("media") == "texts":
        return text
    guided = 2 if config["model"].get("guidance", 1) > 1 else 1
    passes = draws * guided * int(evaluation["steps"] or config["schedule"]["steps"])
    at = f" at {evaluation['size']} pixels" if evaluation["size"] else ""
    return f"{text}{at}: {passes:,} passes"
