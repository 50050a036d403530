"""The memory that models of images and videos need: latents, text, autoencoder."""

from collections.abc import Mapping

from rlfactory.config.checks.base import Config, Traits, stochastic_steps
from rlfactory.config.memory.model_parts import (
    NETWORKS,
    Activations,
    Part,
    autoencoder_widths,
    own_tables,
    parts_of,
)
from rlfactory.config.memory.need import Need, copied_weights, way
from rlfactory.config.memory.sharding import BYTES
from rlfactory.config.nfe import items_per_sample, passes_per_prediction
from rlfactory.config.schema.signature import trait
from rlfactory.model.pipelines.local_models import height_and_width
from rlfactory.utils.types import Size

ENCODING = 0.04
"""Activations of encoding a prompt, as a fraction of the encoders' weights: T5-XXL needs 0.3 GiB in
half precision."""
PIXELS_TOGETHER = 1024**2
"""Pixels of images that are decoded together, at most (`model.pipelines.loading`)."""
LARGEST_TILE = 512
"""Pixels of a tile's edge with `memory.vae_tiling` (`model.memory`)."""
TEXT_WIDTHS = ("joint_attention_dim", "cap_feat_dim", "text_dim", "cross_attention_dim")


def images_need(config: Config, traits: Traits) -> Need:
    """What one process needs.

    Raises:
        LookupError: a network is not known, or of an architecture without measured activations.
    """
    model, memory, precision = config["model"], config["memory"], config["precision"]
    parts = parts_of(str(model["path"])) or {}
    network = next((parts[name] for name in NETWORKS if name in parts), None)
    if network is None or "vae" not in parts or "size" not in model:
        raise LookupError(model["path"])
    tables = own_tables(str(model["_target_"]), traits["model"].get("activations"))
    activations, autoencoder = Activations(network, tables), Activations(parts["vae"], tables)
    full = model["finetune"] == "full"
    trainable = activations.adapters(model["lora_rank"], model.get("lora_targets"))
    frozen = BYTES[precision["weights"]]
    encoders = sum(p.parameters for name, p in parts.items() if name.startswith("text_encoder"))
    encoders *= frozen
    vae = 4.0 * parts["vae"].parameters
    # all prompts may be encoded before the first iteration, after which the encoders are unloaded
    ahead = config["prompt_cache"] is not None and not trait(config["prompts"], "endless", False)
    stays = not (memory["offload_text"] or ahead)
    rows, text = passes_per_prediction(config), text_tokens(config, traits, parts)
    largest = max([model["size"], config["evaluation"]["size"] or 0], key=pixels_of)
    sampling, learning = (
        rate(way(config, when), latent_area(parts, config, size), text) * config[batch] * rows
        for rate, when, size, batch in (
            (activations.sampling, "rollout", largest, "sample_batch"),
            (activations.learning, "learning", model["size"], "micro_batch"),
        )
    )
    if full:
        sampling += copied_weights(config, network.parameters, "rollout")
    if full or not memory["gradient_checkpointing"]:
        learning += copied_weights(config, network.parameters, "learning")
    decoded = _decoded(config, parts["vae"], autoencoder, largest)
    drawn, items = _rollout(config, traits, parts, network, text)
    return Need(
        network,
        network.parameters if full else trainable,
        resident={
            "text encoders": float(encoders) if stays else 0.0,
            "autoencoder": 0.0 if memory["offload_vae"] else vae,
        },
        visiting={"encoding": ENCODING * encoders + (0.0 if stays else encoders)},
        is_away=ahead,
        scores_meanwhile=True,
        sampling={
            "sampling": sampling,
            "decoding": decoded + (vae if memory["offload_vae"] else 0.0),
        },
        learning=learning,
        drawn=drawn,
        items=items,
    )


def _decoded(config: Config, vae: Part, activations: Activations, size: Size) -> float:
    """Slicing decodes one image at a time; tiles are no larger than what the autoencoder learned on
    and than `LARGEST_TILE`.
    """
    memory, pixels, frames = config["memory"], pixels_of(size), frames_of(config)
    together = max(PIXELS_TOGETHER // (pixels * latent_frames(vae, frames)), 1)
    images = 1 if memory["vae_slicing"] else min(together, config["sample_batch"])
    if memory["vae_tiling"]:
        learned = 256 if "dim_mult" in vae.config else vae.config.get("sample_size")
        pixels = min(pixels, int(learned or LARGEST_TILE) ** 2, LARGEST_TILE**2)
    return images * activations.decoding(pixels, frames)


def _rollout(
    config: Config, traits: Traits, parts: Mapping[str, Part], network: Part, text: int
) -> tuple[float, float]:
    """An iteration's stored samples: latents, stored steps and embeddings of its prompts, as they
    are drawn; and the noises of items that are learned from.
    """
    prompts = config["prompts_per_iteration"]
    samples = prompts * config["group_size"]
    vae = parts["vae"].config
    channels = int(vae.get("z_dim") or vae["latent_channels"])
    latents = 4.0 * channels * latent_area(parts, config, config["model"]["size"]) * samples
    width = next((int(network.config[name]) for name in TEXT_WIDTHS if name in network.config), 0)
    embeddings = float(prompts * text * width * BYTES[config["precision"]["weights"]])
    if traits["algo"].get("requires") != "transitions":
        return latents + embeddings, latents * items_per_sample(config, traits)
    stored = 2 * BYTES[config["latent_storage"]] / 4 * len(stochastic_steps(config))
    return latents * (1 + stored) + embeddings, 0.0


def text_tokens(config: Config, traits: Traits, parts: Mapping[str, Part]) -> int:
    """Tokens of the network's input beside the sample's: the text's, and those of a picture."""
    model, own = config["model"], traits["model"]
    picture = latent_area(parts, config, model["size"]) // 4 if own.get("pictures") else 0
    return int(own.get("clip_tokens", 0) + model.get("text_tokens", 0)) + picture


def latent_area(parts: Mapping[str, Part], config: Config, size: Size) -> int:
    """The number of latents, in space and time, of images or videos of a size in pixels."""
    vae = parts["vae"]
    area = pixels_of(size) // int(4 ** (len(autoencoder_widths(vae.config)) - 1))
    return area * latent_frames(vae, frames_of(config))


def frames_of(config: Config) -> int:
    """The frames of a sample; 1 of an image."""
    return int(config["model"].get("frames", 1))


def latent_frames(vae: Part, frames: int) -> int:
    """How many latents a video of `frames` frames has in time: one for the first, and for groups of
    further ones.
    """
    halvings = sum(vae.config.get("temperal_downsample") or ())
    return int((frames - 1) // 2**halvings + 1)


def pixels_of(size: Size) -> int:
    """The number of pixels of an image of a size."""
    height, width = height_and_width(size)
    return height * width
