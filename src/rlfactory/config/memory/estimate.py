"""Peak memory of a run on images, estimated by phase from its configuration."""

from collections.abc import Mapping

from rlfactory.config.checks.base import Config, Traits, steps_trained
from rlfactory.config.evaluation_prompts import evaluation_samples
from rlfactory.config.memory.activations import (
    PIXELS_TOGETHER,
    ActivationBytes,
    UnknownNetwork,
    activation_bytes,
    decoding_bytes,
    latent_channels,
    tile_size,
)
from rlfactory.config.memory.device_memory import on_gpu
from rlfactory.config.memory.language import estimate_language
from rlfactory.config.memory.model_parts import NETWORKS, Part, parts_of, trainable_parameters
from rlfactory.config.memory.run_shape import (
    compute_options,
    frames_of,
    frozen_bytes,
    is_half,
    largest_size,
    latent_area,
    latent_frames,
    passes,
    pixels_of,
    text_tokens,
)
from rlfactory.config.memory.sharding import BYTES, ShardedShares, count_blocks, shares_of
from rlfactory.config.memory.terms import (
    PROGRAM,
    Estimate,
    RewardMemory,
    gradient_bytes,
    host_bytes,
    replicated,
    training_state,
)
from rlfactory.config.nfe import items_per_sample, update_items
from rlfactory.config.schema.signature import trait
from rlfactory.utils.types import Size

ENCODING = 0.04
"""Activations of encoding a prompt, as a fraction of the encoders' weights: T5-XXL needs 0.3 GiB in
half precision."""


def estimate(config: Config, traits: Traits) -> Estimate | None:
    """The estimate of a run on images or texts; None if its networks are not known."""
    if traits["model"].get("media") == "texts":
        return estimate_language(config, traits)
    config = _within_run(config, traits)
    parts = parts_of(str(config["model"].get("path")))
    network = next((parts[name] for name in NETWORKS if name in parts), None) if parts else None
    if parts is None or network is None or "vae" not in parts:
        return None
    if not {"finetune", "lora_rank", "size"} <= config["model"].keys():
        return None  # a plug-in adapter that is configured in another way
    try:
        return _estimate(config, traits, parts, network)
    except UnknownNetwork:
        return None


def _within_run(config: Config, traits: Traits) -> Config:
    """The configuration with batches no larger than what a process has to fill them with."""
    processes = config["hardware"].get("processes")
    ranks = processes if isinstance(processes, int) else 1
    items, _ = update_items(config, traits)
    samples = config["prompts_per_iteration"] * config["group_size"]
    drawn = max(samples, evaluation_samples(config))
    return {
        **config,
        "micro_batch": min(config["micro_batch"], -(-items // ranks)),
        "sample_batch": min(config["sample_batch"], -(-drawn // ranks)),
    }


def _estimate(config: Config, traits: Traits, parts: Mapping[str, Part], network: Part) -> Estimate:
    model, memory = config["model"], config["memory"]
    full = model["finetune"] == "full"
    trainable = trainable_parameters(
        network, model["finetune"], model["lora_rank"], model.get("lora_targets")
    )
    encoders = sum(p.parameters for name, p in parts.items() if name.startswith("text_encoder"))
    encoders *= frozen_bytes(config)
    vae = 4.0 * parts["vae"].parameters
    shares = shares_of(config)
    frozen = 0.0 if full else network.parameters * frozen_bytes(config)
    offloaded = {name for name in ("text", "vae", "weights") if memory[f"offload_{name}"]}
    rewards = RewardMemory.of(config, traits)
    trained = training_state(config, traits, trainable, shares if full else replicated(shares))
    resident = {
        "weights": shares.resident * frozen + trained.pop("weights"),
        **trained,
        "text encoders": 0.0 if "text" in offloaded or _encodes_ahead(config) else encoders,
        "autoencoder": 0.0 if "vae" in offloaded else vae,
        "rewards": rewards.resident,
        "the program": 0.0 if on_gpu(config) else PROGRAM,
    }
    drawn, items = (shares.samples * x for x in _rollout(config, traits, parts, network))
    samples = drawn + items
    gradient, scratch = gradient_bytes(config, trainable, shares if full else replicated(shares))
    blocks = shares.unsharded_blocks(network.parameters, count_blocks(network.config))
    # all prompts are encoded before the first iteration, with the network on the CPU
    leaves = resident["weights"] if on_gpu(config) and not shares.is_sharded else 0.0
    visit = 0.0 if resident["text encoders"] else encoders
    visit -= leaves if _encodes_ahead(config) else 0.0
    sampled = drawn + shares.unsharded_network(network.parameters) + rewards.meanwhile
    phases = {
        "encoding": ENCODING * encoders + visit,
        "sampling": sampled + _sampling(config, parts, network, shares),
        "decoding": sampled + _decoding(config, parts["vae"]) + ("vae" in offloaded) * vae,
        "scoring": drawn + rewards.scoring,
        "learning": samples + gradient + blocks + _learning(config, parts, network, shares),
        "updating": samples + gradient + scratch,
    }
    return Estimate(resident, phases, trainable, host_bytes(config, resident, shares))


def _encodes_ahead(config: Config) -> bool:
    """Whether all prompts are encoded in advance, after which the text encoders are unloaded."""
    return config["prompt_cache"] is not None and not trait(config["prompts"], "endless", False)


def _item_bytes(
    config: Config, parts: Mapping[str, Part], network: Part, size: Size, when: str
) -> ActivationBytes:
    text, options = text_tokens(config, parts, network), compute_options(config, when)
    return activation_bytes(network.config, latent_area(parts, config, size), text, options)


def _copies(config: Config, network: Part, when: str, shares: ShardedShares) -> float:
    """The half-precision copies that autocast makes of float32 weights; FSDP2 gathers them in
    half precision, which leaves nothing to copy.
    """
    model = config["model"]
    is_float32 = model["finetune"] == "full" or frozen_bytes(config) == 4
    copied = is_float32 and is_half(config, when) and not shares.is_sharded
    return 2.0 * network.parameters if copied else 0.0


def _sampling(
    config: Config, parts: Mapping[str, Part], network: Part, shares: ShardedShares
) -> float:
    item = _item_bytes(config, parts, network, largest_size(config), "rollout")
    full = config["model"]["finetune"] == "full"
    copies = _copies(config, network, "rollout", shares) if full else 0.0
    return float(config["sample_batch"] * passes(config) * item.sampling + copies)


def _learning(
    config: Config, parts: Mapping[str, Part], network: Part, shares: ShardedShares
) -> float:
    item = _item_bytes(config, parts, network, config["model"]["size"], "learning")
    checkpointing = config["memory"]["gradient_checkpointing"]
    full = config["model"]["finetune"] == "full"
    copies = 0.0 if checkpointing and not full else _copies(config, network, "learning", shares)
    return float(config["micro_batch"] * passes(config) * (item.saved + item.backward) + copies)


def _decoding(config: Config, vae: Part) -> float:
    """Slicing decodes one image at a time; tiles are no larger than what the autoencoder learned on
    and than `LARGEST_TILE`.
    """
    memory, pixels = config["memory"], pixels_of(largest_size(config))
    frames = frames_of(config)
    latent = pixels * latent_frames(vae.config, frames)
    together = 1 if memory["vae_slicing"] else max(PIXELS_TOGETHER // latent, 1)
    images = min(together, config["sample_batch"])
    if memory["vae_tiling"]:
        pixels = min(pixels, tile_size(vae.config, pixels) ** 2)
    return decoding_bytes(vae.config, pixels, images, frames)


def _text_width(network: Part) -> int:
    names = ("joint_attention_dim", "cap_feat_dim", "text_dim", "cross_attention_dim")
    return next(int(network.config[name]) for name in names if name in network.config)


def _rollout(
    config: Config, traits: Traits, parts: Mapping[str, Part], network: Part
) -> tuple[float, float]:
    """An iteration's stored samples: latents, stored steps and embeddings of its prompts, as they
    are drawn; and the noises of items that are learned from.
    """
    samples = config["prompts_per_iteration"] * config["group_size"]
    prompts = config["prompts_per_iteration"]
    area = latent_area(parts, config, config["model"]["size"])
    latents = 4.0 * latent_channels(parts["vae"].config) * area
    text = text_tokens(config, parts, network) * _text_width(network) * frozen_bytes(config)
    if traits["algo"].get("requires") == "transitions":
        stored, noises = 2 * BYTES[config["latent_storage"]] / 4 * steps_trained(config), 0.0
    else:
        stored, noises = 0.0, float(items_per_sample(config, traits))
    return float(samples * latents * (1 + stored) + prompts * text), float(
        samples * latents * noises
    )
