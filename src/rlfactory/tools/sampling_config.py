"""The configuration for samples of a run's weights: other prompts, and other settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory.config.problems import PlanError, Problem
from rlfactory.utils.types import Size

Config = Mapping[str, Any]


@dataclass(frozen=True)
class SamplingOptions:
    """Settings that differ from those of the run's evaluations; None: as there.

    Attributes:
        steps: sampling steps of an image.
        size: pixels of a square's edge, or height and width.
        guidance: scale of classifier-free guidance, or the guidance that a network takes as input.
        temperature: of tokens; 0 takes the most likely token.
    """

    steps: int | None = None
    size: Size | None = None
    guidance: float | None = None
    temperature: float | None = None


def sampling_config(config: Config, prompts: Sequence[str], options: SamplingOptions) -> Config:
    """A run's configuration for samples of given prompts.

    Neither the run's prompts nor its rewards are built, so their files and networks are not needed.

    Raises:
        PlanError: an option is not one of the run's model.
    """
    is_language = "temperature" in config["dynamics"]
    for name in ("steps", "size", "guidance") if is_language else ("temperature",):
        if getattr(options, name) is not None:
            media = "texts" if is_language else "images"
            raise PlanError([Problem(f"--{name}", f"is no option of a run that makes {media}")])
    own = {"prompts": 1, "noises": 1, "steps": options.steps, "size": options.size}
    evaluation = {name: value for name, value in own.items() if value is not None}
    sampled = {
        **config,
        "prompts": {
            "_target_": "rlfactory.prompts.ops.prompt_list.GivenPrompts",
            "texts": [str(prompt) for prompt in prompts],
            "pictures": [getattr(prompt, "source", None) for prompt in prompts],
        },
        "reward": {"_target_": "rlfactory.reward.none.NoReward"},
        "eval_rewards": {"of": [], "parts": {}},
        "eval_sets": {"of": [], "parts": {}, "rewards": {}, "counts": {}},
        "scoring": {**config["scoring"], "background": "none", "device": None, "offload": False},
        "evaluation": {**config["evaluation"], **evaluation},
    }
    if options.guidance is not None:
        sampled["model"] = _with_guidance(config["model"], options.guidance)
    if options.temperature is not None:
        sampled["dynamics"] = with_temperature(config["dynamics"], options.temperature)
    return sampled


def with_temperature(dynamics: Config, temperature: float) -> Config:
    """Token dynamics at a temperature; at 0 they always take the most likely token."""
    if temperature == 0:
        return {**dynamics, "temperature": 1.0, "top_k": 1, "top_p": 1.0}
    return {**dynamics, "temperature": temperature}


def _with_guidance(model: Config, guidance: float) -> Config:
    """A model's options with another guidance, the embedded one where the network takes it."""
    is_embedded = model.get("embedded_guidance") is not None
    return {**model, "embedded_guidance" if is_embedded else "guidance": guidance}
