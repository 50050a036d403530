"""Memory that the networks of a run hold in one process beside trained state and gradients: the
table's activations, times what passes together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from rlfactory.config.checks.base import Config, Traits, stochastic_steps
from rlfactory.config.checks.prompt_files import known_rows
from rlfactory.config.memory.devices import on_gpu, processes_of
from rlfactory.config.memory.model_parts import (
    BYTES,
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
    ENCODERS,
    height_and_width,
    latent_group,
    latent_pixels,
)
from rlfactory.utils.sizes import CHUNKS, LARGEST_TILE, MAX_LOGITS, PIXELS_TOGETHER
from rlfactory.utils.types import Size


@dataclass(frozen=True)
class Use:
    """The networks of a run, and what they hold in one process, in bytes.

    Attributes:
        parameters: of the networks that are trained, or have adapters.
        trainable: how many numbers are trained.
        sampling: the most that is held on top of all else before anything is learned.
        learning: the same while learning, beside the gradient.
        others: further networks that stay on the device, by name.
    """

    parameters: float
    trainable: float
    sampling: float
    learning: float
    others: Mapping[str, float]


def is_sharded(config: Config) -> bool:
    """Whether several processes share one network."""
    return config["hardware"].get("strategy") == "fsdp2" and processes_of(config) > 1


def gathers_at_once(config: Config) -> bool:
    """Whether learning gathers a sharded network whole, not a block at a time."""
    return config["hardware"].get("tile") is not None and config["model"]["finetune"] == "full"


UNSHARDED_BLOCKS = 3
"""Full blocks that FSDP2 holds while learning: one computes, one is prefetched, one's gradient."""


def _gathered(config: Config, network: Part, when: str) -> float:
    """Bytes of weights that a pass of `rollout` or `learning` has beside those that stay.

    FSDP2 gathers a network in the dtype of the passes: to sample all of it, as ranks may make
    passes in different numbers; to learn some blocks, whose gradient is float32. Otherwise autocast
    keeps half-precision copies of float32 weights that are trained, or read by a backward pass.
    """
    precision, full = config["precision"], config["model"]["finetune"] == "full"
    if is_sharded(config):
        element = max(BYTES[precision["rollout"]], BYTES[precision["learning"]])
        if when == "rollout":
            return float(element * network.parameters)
        share = 1.0 if gathers_at_once(config) else UNSHARDED_BLOCKS / max(network.blocks, 1)
        return 4.0 * network.parameters * min(share, 1.0)
    is_kept = full or (when == "learning" and not config["memory"]["gradient_checkpointing"])
    is_float32 = full or BYTES[precision["weights"]] == 4
    return 2.0 * network.parameters if is_kept and is_float32 and _is_half(config, when) else 0.0


def _is_half(config: Config, when: str) -> bool:
    return BYTES[config["precision"][when]] == 2


def _way(config: Config, when: str) -> str:
    """How a network is used in `rollout` or `learning`, as rows of activations name it."""
    again = when == "learning" and config["memory"]["gradient_checkpointing"]
    way = f"{config['model']['finetune']} {'half' if _is_half(config, when) else 'float'}"
    return f"{way} checkpointed" if again else way


DECODER_GRADIENT = 7.5
"""What an autoencoder keeps for a gradient through its decoder, over what decoding holds at most:
that of Stable Diffusion, counted on empty tensors."""


def image_use(config: Config, traits: Traits) -> Use:
    """The use of a run on images or videos.

    Raises:
        LookupError: a network is not known, or of an architecture without measured activations.
    """
    model, memory = config["model"], config["memory"]
    parts = parts_of(str(model["path"])) or {}
    networks = [parts[name] for name in NETWORKS if name in parts]
    if not networks or "vae" not in parts or "size" not in model:
        raise LookupError(model["path"])
    vae, first = parts["vae"], networks[0]
    tables = own_tables(str(model["_target_"]), traits["model"].get("activations"))
    rates, decoder = Activations(first, tables), Activations(vae, tables)
    full = model["finetune"] == "full"
    numbers = sum(part.parameters for part in networks)
    trained = len(networks) if model.get("trained", "both") == "both" else 1
    adapters = rates.adapters(model["lora_rank"], model.get("lora_targets"))
    whole = replace(first, parameters=trained * first.parameters)
    element = BYTES[config["precision"]["weights"]]
    encoding_parts = (part for name, part in parts.items() if name.startswith(ENCODERS))
    encoders = element * float(sum(part.parameters for part in encoding_parts))
    # all prompts may be encoded before the first iteration, while the network is on the CPU
    ahead = config["prompt_cache"] is not None and not trait(config["prompts"], "endless", False)
    stays = not (ahead or memory["offload_text"])
    is_away = ahead and on_gpu(config) and not is_sharded(config)
    encoding = encoders - is_away * numbers * (4 if full else element)
    autoencoder, visits = 4.0 * vae.parameters, memory["offload_vae"]
    tokens, rows = text_tokens(config, traits, vae), passes_per_prediction(config)
    largest = max([model["size"], config["evaluation"]["size"] or 0], key=pixels_of)
    areas = [latent_area(vae, config, size) for size in (largest, model["size"])]
    drawing = rates.sampling(_way(config, "rollout"), areas[0], tokens)
    drawing = max(
        config["sample_batch"] * rows * drawing,
        _decoding(config, vae, decoder, largest) + visits * autoencoder,
    )
    learning = rates.learning(_way(config, "learning"), areas[1], tokens)
    learning *= rows * passes_per_item(config)[1]
    if traits["algo"].get("requires") == "states":
        learning += DECODER_GRADIENT * decoder.decoding(pixels_of(model["size"]), 1)
    waiting = _samples(config, traits, vae, areas[1])
    return Use(
        numbers,
        trained * (first.parameters if full else adapters),
        max(encoding * (not stays), waiting + _gathered(config, whole, "rollout") + drawing),
        waiting + _gathered(config, first, "learning") + config["micro_batch"] * learning,
        {"text encoders": encoders * stays, "autoencoder": 0.0 if visits else autoencoder},
    )


def _decoding(config: Config, vae: Part, decoder: Activations, size: Size) -> float:
    """As many images at a time as have `PIXELS_TOGETHER`; one by slicing, and a tile of it."""
    memory, pixels = config["memory"], pixels_of(size)
    all_frames = latent_area(vae, config, size) * (latent_pixels(vae.config) or 1) ** 2
    together = min(config["sample_batch"], max(PIXELS_TOGETHER // all_frames, 1))
    if memory["vae_tiling"]:
        pixels = min(pixels, (256 if "dim_mult" in vae.config else LARGEST_TILE) ** 2)
    images = 1 if memory["vae_slicing"] else together
    return images * decoder.decoding(pixels, int(config["model"].get("frames", 1)))


def _samples(config: Config, traits: Traits, vae: Part, area: int) -> float:
    """An iteration's latents, with the stored steps, or the noises, that are learned from."""
    channels = vae.config.get("z_dim") or vae.config["latent_channels"]
    samples = config["prompts_per_iteration"] * config["group_size"] / processes_of(config)
    beside = items_per_sample(config, traits)
    if traits["algo"].get("requires") == "transitions":
        beside = len(stochastic_steps(config)) * 2 * BYTES[config["latent_storage"]] / 4
    return float(samples * 4 * channels * area * (1 + beside))


def text_tokens(config: Config, traits: Traits, vae: Part) -> int:
    """Tokens of the network's input beside the sample's: the text's, and those of a picture."""
    model, own = config["model"], traits["model"]
    has_tokens = own.get("pictures") and own.get("picture_tokens", True)
    picture = latent_area(vae, config, model["size"]) // 4 if has_tokens else 0
    return int(own.get("clip_tokens", 0) + model.get("text_tokens", 0)) + picture


def latent_area(vae: Part, config: Config, size: Size) -> int:
    """The number of latents of an image or a video of a size: in time one of the first frame, and
    one of each group of further ones.
    """
    frames = (int(config["model"].get("frames", 1)) - 1) // latent_group(vae.config) + 1
    return frames * (pixels_of(size) // (latent_pixels(vae.config) or 1) ** 2)


def pixels_of(size: Size) -> int:
    """The number of pixels of an image of a size."""
    return prod(height_and_width(size))


OTHER_PROMPT_TOKENS = 512
"""Tokens assumed of the longest prompt of a source that can't be read and does not say it."""
TEMPLATE_TOKENS = 48
"""Tokens of a chat template around a prompt: SmolLM2's, which adds a system prompt, has 30."""
LETTERS = 3
"""Letters of a token, of which words have more: an estimate that is not below what is needed."""
LEARNING_LOGITS, SAMPLING_LOGITS = 8, 4
"""Float32 arrays of logits that learning and sampling hold at once."""


def text_use(config: Config, traits: Traits) -> Use:
    """The use of a run on texts; arguments and errors are those of `image_use`."""
    model, rows = config["model"], config["micro_batch"]
    network, value_path = language_model(model["path"]), model.get("value_path")
    critic = language_model(value_path) if value_path else Part(0, {})
    if network is None or critic is None:
        raise LookupError(model["path"])
    rates, vocabulary = Activations(network), int(network.config["vocab_size"])
    adapters = rates.adapters(model["lora_rank"], model.get("lora_targets"))
    prompt, response, given = _lengths(config, traits)
    drawn, limit = config["sample_batch"], MAX_LOGITS["cuda" if on_gpu(config) else "cpu"]
    prefill = rates.sampling(_way(config, "rollout"), 0, drawn * prompt)
    token = _cached(network) * BYTES[config["precision"]["rollout"]]
    if given is not None:  # rows of data pass with no more logits than a chunk has
        response, rows = given, min(rows, max(1, limit // (given * vocabulary)))
    logits = rows * response * vocabulary
    logits = logits if logits <= limit else limit // CHUNKS
    learning = rates.learning(_way(config, "learning"), 0, rows * (prompt + response))
    cache = drawn * (prompt + config["dynamics"]["length"]) * token
    sampling = cache + max(prefill, 4.0 * SAMPLING_LOGITS * drawn * vocabulary)
    return Use(
        network.parameters,
        network.parameters if model["finetune"] == "full" else adapters,
        sampling + _gathered(config, network, "rollout"),
        learning + 4.0 * LEARNING_LOGITS * logits + _gathered(config, network, "learning"),
        # in full in every process: weights, gradient and moments in float32
        others={"critic": 16.0 * critic.parameters},
    )


def _cached(network: Part) -> float:
    """Numbers in the KV cache for each token of a row."""
    config = network.config
    hidden = config.get("hidden_size") or config["n_embd"]
    heads = config.get("num_attention_heads") or config["n_head"]
    width = config.get("head_dim") or hidden // heads
    kept = int(config.get("num_key_value_heads") or heads) * int(width)
    return 2.0 * network.blocks * kept


def _lengths(config: Config, traits: Traits) -> tuple[int, int, int | None]:
    """About how many tokens the longest prompt, response and, if any, completion of data have."""
    rows, algo, model = known_rows(config, traits), config["algo"], config["model"]

    def longest(texts: list[str]) -> int:
        return max(map(len, texts), default=0) // LETTERS + 1

    found = trait(config["prompts"], "longest_tokens")
    if found is None:
        read = rows and longest([*map(str, rows.texts)]) + TEMPLATE_TOKENS
        found = read or OTHER_PROMPT_TOKENS
    prompt = min(found, model.get("max_prompt_length") or found)
    given = None
    if traits["algo"].get("samples_from") == "data" and rows is not None:
        columns = [algo[key] for key in traits["algo"].get("columns", ()) if algo.get(key)]
        given = longest([str(row.get(column) or "") for row in rows.rows for column in columns])
        given = min(given, algo.get("length") or given)
    return int(prompt), int(config["dynamics"]["length"]), given
