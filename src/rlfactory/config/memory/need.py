"""What models of images and of texts need in one process, and how the network is used there."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rlfactory.config.checks.base import Config, Traits, penalties, stochastic_steps
from rlfactory.config.checks.prompt_files import known_rows
from rlfactory.config.memory.devices import BYTES, on_gpu, shares_of
from rlfactory.config.memory.model_parts import (
    NETWORKS,
    Activations,
    Part,
    language_model,
    own_tables,
    parts_of,
)
from rlfactory.config.nfe import items_per_sample, passes_per_item, passes_per_prediction
from rlfactory.config.schema.signature import trait
from rlfactory.model.pipelines.local_models import (
    height_and_width,
    latent_group,
    latent_pixels,
)
from rlfactory.utils.types import Size


@dataclass(frozen=True)
class Need:
    """What a model needs in one process beside its weights, in bytes.

    Attributes:
        network: the network that is trained.
        trainable: the number of trained parameters.
        resident: further networks that stay on the device.
        visiting: networks that are there in one phase alone, in which the network `is_away`, on the
            CPU.
        sampling: what phases of sampling hold.
        learning: what a forward and backward pass of a micro-batch holds.
        gradient: gradients of further networks.
        drawn, items: all samples as they are drawn, and what learning adds to them.
    """

    network: Part
    trainable: float
    resident: Mapping[str, float]
    sampling: Mapping[str, float]
    learning: float
    visiting: Mapping[str, float] = field(default_factory=dict)
    is_away: bool = False
    gradient: float = 0.0
    drawn: float = 0.0
    items: float = 0.0


def copied_weights(config: Config, parameters: float, when: str) -> float:
    """The half-precision copies that autocast makes of float32 weights; FSDP2 gathers them in
    half precision, which leaves nothing to copy.
    """
    precision = config["precision"]
    is_full = config["model"]["finetune"] == "full"
    is_float32 = is_full or BYTES[precision["weights"]] == 4
    is_half = BYTES[precision[when]] == 2
    return 2.0 * parameters if is_float32 and is_half and not shares_of(config).is_sharded else 0.0


def way(config: Config, when: str) -> str:
    """How a network is used in `rollout` or `learning`, as rows of activations name it."""
    words = [
        config["model"]["finetune"],
        "half" if BYTES[config["precision"][when]] == 2 else "float",
    ]
    if when == "learning" and config["memory"]["gradient_checkpointing"]:
        words.append("checkpointed")
    return " ".join(words)


ENCODERS = ("text_encoder", "image_encoder")
"""How components begin that encode prompts (`model.memory`)."""
ENCODING = 0.04
"""Activations of encoding a prompt, as a fraction of the encoders' weights: T5-XXL needs 0.3 GiB in
half precision."""
DECODER_GRADIENT = 7.5
"""What an autoencoder keeps for a gradient through its decoder, over what decoding holds at most:
that of Stable Diffusion, counted on empty tensors."""
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
    both, idle = network, 0.0
    if (second := parts.get(traits["model"].get("second_part", ""))) is not None:
        total = network.parameters + second.parameters
        both = replace(network, parameters=total, networks=2)
        if model.get("trained", "both") == "both":
            trainable *= 2
        elif full:
            both, idle = network, second.parameters * frozen * shares_of(config).network
    encoders = sum(p.parameters for name, p in parts.items() if name.startswith(ENCODERS))
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
    learning *= passes_per_item(config)[1]
    if traits["algo"].get("requires") == "states":
        pixels = pixels_of(model["size"])
        learning += DECODER_GRADIENT * config["micro_batch"] * autoencoder.decoding(pixels, 1)
    decoded = _decoded(config, parts["vae"], autoencoder, largest)
    drawn, items = _rollout(config, traits, parts, network, text)
    return Need(
        both,
        both.parameters if full else trainable,
        resident={
            "the frozen network": idle,
            "text encoders": float(encoders) if stays else 0.0,
            "autoencoder": 0.0 if memory["offload_vae"] else vae,
        },
        visiting={"encoding": ENCODING * encoders + (0.0 if stays else encoders)},
        is_away=ahead,
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
    requires = traits["algo"].get("requires")
    if requires != "transitions":
        kept = 2 * latents if requires == "states" else latents
        return kept + embeddings, latents * items_per_sample(config, traits)
    stored = 2 * BYTES[config["latent_storage"]] / 4 * len(stochastic_steps(config))
    return latents * (1 + stored) + embeddings, 0.0


def text_tokens(config: Config, traits: Traits, parts: Mapping[str, Part]) -> int:
    """Tokens of the network's input beside the sample's: the text's, and those of a picture."""
    model, own = config["model"], traits["model"]
    has_tokens = own.get("pictures") and own.get("picture_tokens", True)
    picture = latent_area(parts, config, model["size"]) // 4 if has_tokens else 0
    return int(own.get("clip_tokens", 0) + model.get("text_tokens", 0)) + picture


def latent_area(parts: Mapping[str, Part], config: Config, size: Size) -> int:
    """The number of latents, in space and time, of images or videos of a size in pixels."""
    vae = parts["vae"]
    area = pixels_of(size) // (latent_pixels(vae.config) or 1) ** 2
    return area * latent_frames(vae, frames_of(config))


def frames_of(config: Config) -> int:
    """The frames of a sample; 1 of an image."""
    return int(config["model"].get("frames", 1))


def latent_frames(vae: Part, frames: int) -> int:
    """How many latents a video of `frames` frames has in time: one for the first, and for groups of
    further ones.
    """
    return (frames - 1) // latent_group(vae.config) + 1


def pixels_of(size: Size) -> int:
    """The number of pixels of an image of a size."""
    height, width = height_and_width(size)
    return height * width


OTHER_PROMPT_TOKENS = 512
"""Tokens assumed of the longest prompt of a source that can't be read and does not say it."""
TEMPLATE_TOKENS = 48
"""Tokens of a chat template around a prompt: SmolLM2's, which adds a system prompt, has 30."""
MAX_LOGITS = {False: 2**25, True: 2**28}
"""How many logits are held at once on a CPU and on a GPU (`model.text_base`); of more, a chunk of a
quarter of them."""
LETTERS = 3
"""Letters of a token, of which words have more: an estimate that is not below what is needed."""
LEARNING_LOGITS, SAMPLING_LOGITS = 8, 4
"""Float32 arrays of logits that learning and sampling hold at once."""


def texts_need(config: Config, traits: Traits) -> Need:
    """What one process needs.

    Raises:
        LookupError: a network is not known, or of an architecture without measured activations.
    """
    model = config["model"]
    network, value_path = language_model(model["path"]), model.get("value_path")
    critic = language_model(value_path) if value_path else Part(0, {})
    if network is None or critic is None:
        raise LookupError(model["path"])
    activations, shares = Activations(network), shares_of(config)
    full = model["finetune"] == "full"
    trainable = activations.adapters(model["lora_rank"], model.get("lora_targets"))
    own = max(1, int(config["prompts_per_iteration"] * config["group_size"] * shares.samples))
    prompt = _longest_prompt(config, traits)
    response = int(config["dynamics"]["length"])
    rows = min(config["sample_batch"], own)
    vocabulary = int(network.config["vocab_size"])
    cache = rows * (prompt + response) * _cached(network, BYTES[config["precision"]["rollout"]])
    copies = copied_weights(config, network.parameters, "rollout")
    prefill = activations.sampling(way(config, "rollout"), 0, rows * prompt)
    return Need(
        network,
        network.parameters if full else trainable,
        # in full in every process: weights and moments in float32
        resident={"critic": 12.0 * critic.parameters},
        gradient=4.0 * critic.parameters,
        sampling={
            "prefilling": cache + prefill + copies,
            "generating": cache + 4.0 * SAMPLING_LOGITS * rows * vocabulary + copies,
        },
        learning=_learning(config, traits, network, activations, own, prompt),
    )


def _longest_prompt(config: Config, traits: Traits) -> int:
    """About how many tokens the longest prompt has, at most `model.max_prompt_length`."""
    found, rows = trait(config["prompts"], "longest_tokens"), known_rows(config, traits)
    if found is None and rows is not None:
        letters = max((len(str(text)) for text in rows.texts), default=0)
        found = letters // LETTERS + 1 + TEMPLATE_TOKENS
    found = int(found or OTHER_PROMPT_TOKENS)
    return min(found, config["model"].get("max_prompt_length") or found)


def _cached(network: Part, element_size: int) -> float:
    """Bytes of the KV cache for each token of a row."""
    config = network.config
    hidden, heads = (
        config.get(a) or config[b]
        for a, b in (("hidden_size", "n_embd"), ("num_attention_heads", "n_head"))
    )
    width = config.get("head_dim") or hidden // heads
    kept = int(config.get("num_key_value_heads") or heads) * int(width)
    return 2.0 * network.blocks * kept * element_size


def _learning(
    config: Config, traits: Traits, network: Part, activations: Activations, own: int, prompt: int
) -> float:
    """A micro-batch: what its pass holds, logits of a chunk, and hidden states beside them; what
    the reference's pass holds is less.
    """
    response, rows = int(config["dynamics"]["length"]), min(config["micro_batch"], own)
    vocabulary, limit = int(network.config["vocab_size"]), MAX_LOGITS[on_gpu(config)]
    if (given := _given_tokens(config, traits)) is not None:
        response, rows = given, min(rows, max(1, limit // (given * vocabulary)))
    answered = rows * response
    at_once = answered
    if answered * vocabulary > limit:
        at_once = max(1, limit // 4 // vocabulary)
    hidden = int(network.config.get("hidden_size") or network.config["n_embd"])
    compared = any(True for _ in penalties(config, traits))
    found: float = activations.learning(way(config, "learning"), 0, rows * (prompt + response))
    found += 4.0 * answered * hidden * 2 * (1 + compared)
    found += 4.0 * LEARNING_LOGITS * vocabulary * at_once
    return found + copied_weights(config, network.parameters, "learning")


def _given_tokens(config: Config, traits: Traits) -> int | None:
    """About how many tokens the longest of the known completions of the data has."""
    rows, algo = known_rows(config, traits), config["algo"]
    if traits["algo"].get("samples_from") != "data" or rows is None:
        return None
    columns = [algo[key] for key in traits["algo"].get("columns", ()) if algo.get(key)]
    texts = [str(row.get(column) or "") for row in rows.rows for column in columns]
    longest = max(map(len, texts), default=0) // LETTERS + 1
    return min(longest, algo.get("length") or longest)
