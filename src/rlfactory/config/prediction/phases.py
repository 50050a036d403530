"""The passes of an iteration by phase, from a run's configuration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rlfactory.config import nfe
from rlfactory.config.checks.base import Config, Traits, penalties
from rlfactory.config.evaluation_prompts import evaluation_draws, evaluation_samples
from rlfactory.config.memory.activations import UnknownNetwork
from rlfactory.config.memory.device_memory import on_gpu
from rlfactory.config.memory.language import text_batches, text_options, trained_numbers
from rlfactory.config.memory.language_shapes import LanguageShape, language_shape_of
from rlfactory.config.memory.model_parts import NETWORKS, Part, parts_of, trainable_parameters
from rlfactory.config.memory.rewards import RewardNetwork, reward_networks
from rlfactory.config.memory.run_shape import (
    compute_options,
    frames_of,
    is_half,
    latent_area,
    latent_frames,
    passes,
    text_tokens,
    weight_sets,
)
from rlfactory.config.memory.sharding import BYTES, processes_of, shares_of
from rlfactory.config.prediction.decoding import decoding
from rlfactory.config.prediction.image_work import network_passes
from rlfactory.config.prediction.language_work import decoded_token, hidden_passes, logits
from rlfactory.config.prediction.work import Work, rate_of
from rlfactory.utils.types import Size

Passes = list[tuple[float, Work]]
"""How often a pass is made, and its work."""
STEP_BYTES = 28.0
"""Bytes for each trained number that an optimizer step moves: weight, gradient and two moments."""
AVERAGE_BYTES = 12.0
"""Bytes for each number of a weight set that is updated."""
REWARD_LAUNCHES = 14
"""Kernels of a block of a reward's transformer."""


@dataclass(frozen=True)
class IterationWork:
    """What one process does in an iteration.

    Attributes:
        phases: passes by phase: sampling, decoding, scoring, learning.
        samples: scored on the host, for rewards that have no network.
        evaluation: the passes of one evaluation.
        evaluated: samples of one evaluation.
    """

    phases: Mapping[str, Passes]
    samples: float
    evaluation: Passes = field(default_factory=list)
    evaluated: float = 0.0


def iteration_work(config: Config, traits: Traits) -> IterationWork | None:
    """The work of an iteration in one process; None if the network is not known."""
    try:
        if traits["model"].get("media") == "texts":
            return _text_work(config, traits)
        return _image_work(config, traits)
    except (UnknownNetwork, KeyError):
        return None


def _batched(count: float, most: int) -> tuple[float, int]:
    """How many batches `count` samples make, as a mean, and how many rows each has."""
    rows = max(1, min(most, int(count)))
    return count / rows, rows


def _image_work(config: Config, traits: Traits) -> IterationWork | None:
    parts = parts_of(str(config["model"].get("path")))
    network = next((parts[name] for name in NETWORKS if name in parts), None) if parts else None
    if parts is None or network is None or "vae" not in parts:
        return None
    samples = config["prompts_per_iteration"] * config["group_size"] / processes_of(config)
    trainable = _trainable(config, network)
    phases = {
        "sampling": _sampling(config, traits, parts, network, samples),
        "decoding": _decoded(config, parts, samples, config["model"]["size"]),
        "scoring": _scoring(config, traits, samples),
        "learning": [
            *_learning(config, traits, parts, network, samples),
            *_updates(config, traits, trainable, network.parameters),
        ],
    }
    evaluation = config["evaluation"]
    held_out = evaluation_samples(config) / processes_of(config)
    size = evaluation["size"] or config["model"]["size"]
    steps = evaluation["steps"] or config["schedule"]["steps"]
    count = evaluation_draws(config) / processes_of(config)
    drawn = _forward(config, parts, network, count, size, float(steps))
    scored = [*_decoded(config, parts, count, size), *_scoring(config, traits, held_out)]
    return IterationWork(phases, samples, [*drawn, *scored], held_out)


def _trainable(config: Config, network: Part) -> float:
    model = config["model"]
    return trainable_parameters(
        network, model["finetune"], model["lora_rank"], model.get("lora_targets")
    )


def _forward(
    config: Config,
    parts: Mapping[str, Part],
    network: Part,
    samples: float,
    size: Size,
    each: float,
) -> Passes:
    """`each` forward passes a sample while sampling."""
    batches, rows = _batched(samples, config["sample_batch"])
    forward, _ = network_passes(
        network.config,
        latent_area(parts, config, size),
        text_tokens(config, parts, network),
        rows * passes(config),
        compute_options(config, "rollout"),
        network.parameters,
    )
    return [(batches * each, forward)]


def _sampling(
    config: Config, traits: Traits, parts: Mapping[str, Part], network: Part, samples: float
) -> Passes:
    each = nfe.nfe_sample(config, traits)
    drawn = _forward(config, parts, network, samples, config["model"]["size"], each)
    shares = shares_of(config)
    gathered = shares.gathered * network.parameters * (1 - shares.network)
    return [*drawn, (1.0, Work(sent=gathered))] if shares.is_sharded else drawn


def _decoded(config: Config, parts: Mapping[str, Part], samples: float, size: Size) -> Passes:
    most = 1 if config["memory"]["vae_slicing"] else config["sample_batch"]
    batches, rows = _batched(samples, most)
    vae, area = parts["vae"].config, latent_area(parts, config, size)
    return [(batches, decoding(vae, area, rows, latent_frames(vae, frames_of(config))))]


def _scoring(config: Config, traits: Traits, samples: float) -> Passes:
    networks = reward_networks(config, traits, is_gpu=on_gpu(config))
    return [_scored(network, samples) for network in networks]


def _scored(network: RewardNetwork, samples: float) -> tuple[float, Work]:
    batches, rows = _batched(samples, network.batch)
    elements = float(rows * network.tokens * network.width * network.layers)
    moved = 20.0 * network.element_size * elements
    launches = float(REWARD_LAUNCHES * network.layers)
    return batches, Work(
        rows * network.flops, moved, launches, rate=rate_of(network.element_size == 2)
    )


def _learning(
    config: Config, traits: Traits, parts: Mapping[str, Part], network: Part, samples: float
) -> Passes:
    items, size = nfe.update_items(config, traits)
    own = items / processes_of(config)
    batches, rows = _batched(own, size)
    updates = config["updates_per_iteration"] * config["epochs"]
    forward, backward = network_passes(
        network.config,
        latent_area(parts, config, config["model"]["size"]),
        text_tokens(config, parts, network),
        rows * passes(config),
        compute_options(config, "learning"),
        network.parameters,
    )
    compared = nfe.nfe_compare(config, traits) / max(nfe.nfe_train(config, traits), 1)
    shares = shares_of(config)
    gathered = Work()
    if shares.is_sharded:
        # blocks are gathered for each pass, and their gradients summed
        all_gather = shares.gathered * network.parameters * (1 - shares.network)
        summed = 4.0 * network.parameters if config["model"]["finetune"] == "full" else 0.0
        gathered = Work(sent=(2 + compared) * all_gather + summed * (1 - shares.network))
    together = forward + backward + gathered
    return [(batches * updates, together), (batches * updates * compared, forward)]


def _updates(config: Config, traits: Traits, trainable: float, parameters: float) -> Passes:
    """Optimizer steps, weight sets, and with several copies of a network the sum of gradients."""
    updates = config["updates_per_iteration"] * config["epochs"]
    shares = shares_of(config)
    full = config["model"]["finetune"] == "full"
    own = trainable * (shares.network if full else 1.0)
    sets = len(weight_sets(config, traits) - {"reference"})
    several = processes_of(config) > 1 and not (full and shares.is_sharded)
    # a ring sends every byte twice; the gradient is zeroed, its norm taken, and it is scaled
    sent = 8.0 * trainable if several else 0.0
    step = Work(bytes=(STEP_BYTES + 20.0) * own, launches=100.0, sent=sent)
    return [(updates, step), (updates, Work(bytes=AVERAGE_BYTES * own * sets, launches=20.0))]


def _text_work(config: Config, traits: Traits) -> IterationWork | None:
    shape = language_shape_of(str(config["model"].get("path")))
    if shape is None:
        return None
    samples = config["prompts_per_iteration"] * config["group_size"] / processes_of(config)
    is_given = traits["algo"].get("samples_from") == "data"
    phases = {
        "sampling": [] if is_given else _generation(config, shape, samples),
        "scoring": _scoring(config, traits, samples),
        "learning": [
            *_text_learning(config, traits, shape, samples),
            *_updates(config, traits, trained_numbers(config, shape), shape.parameters),
        ],
    }
    held_out = evaluation_samples(config) / processes_of(config)
    drawn = _generation(config, shape, evaluation_draws(config) / processes_of(config))
    evaluation = [*drawn, *_scoring(config, traits, held_out)]
    return IterationWork(phases, samples, evaluation, held_out)


def _generation(config: Config, shape: LanguageShape, samples: float) -> Passes:
    sizes = text_batches(config)
    batches, rows = _batched(samples, config["sample_batch"])
    options = text_options(config, "rollout")
    prefill, _ = hidden_passes(shape, rows, sizes.prompt, options)
    element = BYTES[config["precision"]["rollout"]]
    token = decoded_token(shape, rows, sizes.prompt + sizes.response / 2, element)
    return [(batches, prefill), (batches * sizes.response, token)]


def _text_learning(config: Config, traits: Traits, shape: LanguageShape, samples: float) -> Passes:
    sizes, options = text_batches(config), text_options(config, "learning")
    updates = config["updates_per_iteration"] * config["epochs"]
    batches, rows = _batched(samples / config["updates_per_iteration"], config["micro_batch"])
    forward, backward = hidden_passes(shape, rows, sizes.tokens, options)
    answered, half = rows * sizes.response, is_half(config, "learning")
    head = logits(shape, answered, arrays=LEARNING_ARRAYS, learns=True, half=half)
    passed = [(batches * updates, forward + backward + head)]
    return passed + [*_references(config, traits, shape, samples, forward, rows)]


LEARNING_ARRAYS, COMPARED_ARRAYS = 24.0, 8.0
"""Passes over the logits of a micro-batch: loss, entropy and their gradient; likelihoods alone."""


def _references(
    config: Config, traits: Traits, shape: LanguageShape, samples: float, forward: Work, rows: int
) -> Iterator[tuple[float, Work]]:
    """The reference's passes: in each micro-batch for the loss or a penalty in it, else once."""
    answered = rows * text_batches(config).response
    half = is_half(config, "learning")
    head = logits(shape, answered, arrays=COMPARED_ARRAYS, learns=False, half=half)
    if "reference" in (traits["algo"].get("compared_weight_sets") or ()):
        yield samples * config["epochs"] / rows, forward + head
    for _, node, _ in penalties(config, traits):
        if node.get("reference"):
            times = config["epochs"] if node.get("placement") == "loss" else 1
            yield samples * times / rows, forward + head
