"""Noise levels of a sampling run: a schedule, and what the pipeline's own scheduler adds to it."""

from typing import Any

import torch
from torch import Tensor

from rlfactory.dynamics.schedule import dynamic_shift
from rlfactory.model.base import Resolution
from rlfactory.model.pipelines.local_models import height_and_width
from rlfactory.model.pipelines.scheduler_config import CONVERSIONS, flow_scheduler_fault, own_shift
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import Size


def units_of(size: Size, unit: int, most: int | None = None) -> tuple[int, int]:
    """How many units of so many pixels the edges of a size have, height and width. ModelError where
    an edge is no multiple of them or has more than `most`, or there are not one or two edges.
    """
    try:
        edges = height_and_width(size)
    except ValueError as error:
        raise ModelError(str(error)) from error
    if any(edge % unit or edge > unit * (most or edge) for edge in edges):
        limit = f" up to {unit * most}" if most else ""
        raise ModelError(f"size={size}: multiples of {unit}{limit} are possible")
    return edges[0] // unit, edges[1] // unit


def latent_frames(frames: int, group: int) -> int:
    """How many latents a video has in time: one for the first frame, and one for each group.
    ModelError where the further frames are no whole groups.
    """
    if (frames - 1) % group:
        near = (frames - 1) // group * group + 1
        raise ModelError(
            f"model.frames={frames}: this model makes 1, {group + 1}, {2 * group + 1}, ..."
            f" frames; type model.frames={near} or model.frames={near + group}"
        )
    return (frames - 1) // group + 1


def flow_resolution(shape: tuple[int, ...], tokens: int, scheduler: Any) -> Resolution:
    """The resolution of a rectified flow of latents `shape` and so many image tokens, with what its
    pipeline's scheduler, of flow matching or of flow sigmas, says of it. ModelError where that has
    options that no schedule follows.
    """
    config = scheduler.config
    if fault := flow_scheduler_fault(type(scheduler).__name__, config):
        raise ModelError(f"the model {fault}")
    if dynamic := bool(config.get("use_dynamic_shifting")):
        shift = dynamic_shift(
            tokens,
            base=config.base_shift,
            largest=config.max_shift,
            base_tokens=config.base_image_seq_len,
            most_tokens=config.max_image_seq_len,
            exponential=config.get("time_shift_type", "exponential") == "exponential",
        )
    else:
        shift = own_shift(type(scheduler).__name__, config)
    conversions = {key: config[key] for key in CONVERSIONS if config.get(key)}
    return Resolution(shape, shift, tokens, dynamic, conversions)


def noise_levels(schedule: Any, resolution: Resolution, steps: int | None = None) -> Tensor:
    """A schedule's noise levels `[n + 1]` for images of a resolution.

    The conversions of the pipeline's scheduler, such as Karras' spacing, are done by diffusers.
    """
    sigmas: Tensor = schedule.sigmas(
        resolution.shift_of(steps or schedule.steps),
        steps,
        tokens=resolution.tokens,
        dynamic=resolution.dynamic,
    )
    if not resolution.conversions:
        return sigmas
    # imported here: it takes seconds, and models of texts need nothing of it
    from diffusers import FlowMatchEulerDiscreteScheduler

    scheduler = FlowMatchEulerDiscreteScheduler(shift=1.0, **resolution.conversions)
    scheduler.set_timesteps(sigmas=sigmas[:-1].tolist())
    return torch.as_tensor(scheduler.sigmas)
