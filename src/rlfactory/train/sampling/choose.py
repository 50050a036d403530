"""Builds the sampler that fits a model and an algorithm."""

from typing import Any

import torch

from rlfactory.algo.base import Algorithm
from rlfactory.config.prompt_data import folder_of_prompts
from rlfactory.config.schema.targets import instantiate
from rlfactory.model.pipelines.local_models import image_size
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.train.sampling.base import Advance, Sampler
from rlfactory.train.sampling.image_sampler import ImageSampler
from rlfactory.train.sampling.trajectories import RolloutSpec
from rlfactory.utils.dotted_keys import Config


def _text_sampler(
    config: Config, model: Any, dynamics: Any, algo: Algorithm[Any, Any, Any], advance: Advance
) -> Sampler:
    """The sampler of a language model."""
    # not imported where images are trained
    from rlfactory.train.sampling.engine import EngineSampler
    from rlfactory.train.sampling.given import GivenSampler
    from rlfactory.train.sampling.text_sampler import TextSampler

    batch = config["sample_batch"]
    options: dict[str, Any] = {"dynamics": dynamics, "batch": batch, "advance": advance}
    if algo.samples_from == "data":
        options |= {"length": algo.length, "members": algo.members}
        options["answers_alone"] = algo.learns_answers_alone
        return GivenSampler(model, completion=algo.completion, **options)
    engine = instantiate(config["engine"], "engine")
    if engine.draws_by == "engine":
        return EngineSampler(model, engine=engine, **options)
    return TextSampler(model, in_order=config["hardware"].get("tile") is not None, **options)


def build_sampler(
    config: Config,
    model: Any,
    dynamics: Any,
    algo: Algorithm[Any, Any, Any],
    schedule: Any,
    sigmas: Any,
    advance: Advance,
) -> Sampler:
    """The sampler of a model.

    Args:
        sigmas: the noise levels of rollouts by the `schedule`; both are None for texts.
    """
    if model.media == "texts":
        return _text_sampler(config, model, dynamics, algo, advance)
    size, steps = config["evaluation"]["size"], config["evaluation"]["steps"]
    resolution = model.resolution if size is None else model.resolution_of(size)
    transitions = None
    if algo.requires == "transitions":
        transitions = RolloutSpec(
            dynamics,
            window=instantiate(config["window"], "window"),
            branches=config["branches"],
            branch_at=config["branch_at"],
            mean=algo.stores_step_mean,
            dtype=getattr(torch, config["latent_storage"]),
            tail=config["tail"],
            **(config["tree"] if config["branch_at"] == "tree" else {}),
        )
    options = {
        "dynamics": dynamics,
        "sigmas": sigmas,
        "evaluation_sigmas": noise_levels(schedule, resolution, steps),
        "evaluation_shape": resolution.shape,
        "policy_fraction": config["evaluation"]["policy_fraction"],
        "transitions": transitions,
        "kept_step": algo.kept_step if algo.requires == "states" else None,
        "batch": config["sample_batch"],
        "advance": advance,
    }
    if algo.samples_from == "data":
        from rlfactory.train.sampling.given import GivenImageSampler

        return GivenImageSampler(
            model,
            completion=algo.completion,
            folder=folder_of_prompts(config),
            size=image_size(config["model"]),
            **options,
        )
    return ImageSampler(model, **options)
