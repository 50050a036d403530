"""Shapes of a run on images that memory and time follow from: latents, text tokens, batches."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.checks.base import Config, Traits, penalties
from rlfactory.config.memory.activations import (
    ComputeOptions,
    autoencoder_widths,
    family_of,
)
from rlfactory.config.memory.model_parts import Part
from rlfactory.config.memory.sharding import BYTES
from rlfactory.config.nfe import reference_of
from rlfactory.model.pipelines.families import BY_TARGET
from rlfactory.model.pipelines.local_models import height_and_width
from rlfactory.utils.types import Size


def latent_area(parts: Mapping[str, Part], config: Config, size: Size) -> int:
    """The number of latents, in space and time, of images or videos of a size in pixels."""
    vae = parts["vae"].config
    area = pixels_of(size) // int(4 ** (len(autoencoder_widths(vae)) - 1))
    return area * latent_frames(vae, frames_of(config))


def frames_of(config: Config) -> int:
    """The frames of a sample; 1 of an image."""
    return int(config["model"].get("frames", 1))


def latent_frames(autoencoder: Mapping[str, Any], frames: int) -> int:
    """How many latents a video of `frames` frames has in time: one for the first, and for groups of
    further ones.
    """
    halvings = sum(autoencoder.get("temperal_downsample") or ())
    return int((frames - 1) // 2**halvings + 1)


def pixels_of(size: Size) -> int:
    """The number of pixels of an image of a size."""
    height, width = height_and_width(size)
    return height * width


def text_tokens(config: Config, parts: Mapping[str, Part], network: Part) -> int:
    """Tokens of the network's input beside the sample's: the text's, and those of a picture."""
    model, encoder = config["model"], parts.get("text_encoder")
    family = BY_TARGET.get(model["_target_"])
    picture = latent_area(parts, config, model["size"]) // 4 if family and family.pictures else 0
    clip = int(encoder.config.get("max_position_embeddings", 77)) if encoder else 77
    reads_clip = family_of(network.config) in ("sd3", "unet")
    return (clip if reads_clip else 0) + int(model.get("text_tokens", 0)) + picture


def passes(config: Config) -> int:
    """Rows of the batch for each sample: two with classifier-free guidance."""
    return 2 if (config["model"].get("guidance") or 0) > 1 else 1


def largest_size(config: Config) -> Size:
    """The larger image of training and evaluation, in pixels."""
    sizes: list[Size] = [config["model"]["size"], config["evaluation"]["size"] or 0]
    return max(sizes, key=pixels_of)


def is_half(config: Config, when: str) -> bool:
    """Whether the network computes in half precision in `rollout` or `learning`."""
    return BYTES[config["precision"][when]] == 2


def frozen_bytes(config: Config) -> int:
    """Bytes of a frozen parameter."""
    return BYTES[config["precision"]["weights"]]


def compute_options(config: Config, when: str) -> ComputeOptions:
    """What a pass's activations depend on."""
    model = config["model"]
    return ComputeOptions(
        half=is_half(config, when),
        full=model["finetune"] == "full",
        rank=model["lora_rank"],
        checkpointing=bool(config["memory"]["gradient_checkpointing"]),
    )


def weight_sets(config: Config, traits: Traits) -> set[str]:
    """The weight sets besides the policy, each a copy of the trained parameters.

    `ema` is kept where it is evaluated, or compared with.
    """
    names = {*(traits["algo"].get("compared_weight_sets") or ()), config["algo"].get("behaviour")}
    names |= {reference_of(node) for _, node, _ in penalties(config, traits)}
    if config["evaluation"].get("weights", "ema") == "ema":
        names.add("ema")
    if config["evaluation"].get("policy_fraction", 1.0) < 1:
        names.add("reference")  # for the last steps of evaluations
    without_copy = {None, "policy"}
    starts = config.get("begin_from") and config.get("reference_from") == "start"
    if config["model"]["finetune"] == "lora" and not starts:
        without_copy.add("reference")  # it is the network without its adapters
    return names - without_copy
