"""Peak memory of a run, estimated by phase from its configuration, without torch; and the options
that save most where it does not fit.

Weights, gradients, moments and weight sets are arithmetic; activations are measured
(`model_parts.Activations`). `rlfactory estimate` counts all of it on the real engine.
"""

import json
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from rlfactory.config.checks.base import Config, Traits, rewards_of
from rlfactory.config.evaluation_prompts import evaluation_samples
from rlfactory.config.memory.devices import (
    BYTES,
    GIB,
    USABLE_FRACTION,
    ShardedShares,
    available_memory,
    on_gpu,
    processes_of,
    shares_of,
)
from rlfactory.config.memory.model_parts import count_parameters, language_model
from rlfactory.config.memory.need import Need, images_need, texts_need
from rlfactory.config.nfe import frozen_networks, update_items, weight_sets
from rlfactory.config.schema.signature import Signature, trait
from rlfactory.config.schema_problems import all_node_problems
from rlfactory.model.pipelines.local_models import folder_of
from rlfactory.utils.dotted_keys import with_values

PROGRAM = 1.0 * GIB
"""Main memory of the imported libraries; counted only where the device is the CPU."""
REWARDS_FILE = Path(__file__).with_name("rewards.json")
PATHS = ("path", "clip_path")
"""Options of a reward that name a network."""


@dataclass(frozen=True)
class Estimate:
    """The memory of one process.

    Attributes:
        resident: bytes that are held all the time, by name.
        phases: the most bytes that each phase of an iteration holds on top.
        trainable: the number of trained parameters.
        host: bytes of main memory beside the device's, in each process.
    """

    resident: Mapping[str, float]
    phases: Mapping[str, float]
    trainable: float
    host: float = 0.0

    @property
    def phase(self) -> str:
        """The phase that holds the most."""
        return max(self.phases, key=lambda name: self.phases[name])

    @property
    def peak(self) -> float:
        """Peak memory in bytes."""
        return sum(self.resident.values()) + self.phases[self.phase]

    def __str__(self) -> str:
        named = {**self.resident, self.phase: self.phases[self.phase]}
        largest = sorted(named.items(), key=lambda entry: -entry[1])
        shown = [f"{name} {size / GIB:.1f}" for name, size in largest if size >= 0.05 * GIB]
        details = f": {', '.join(shown)}" if shown else ""
        return f"about {self.peak / GIB:.1f} GiB at most, while {self.phase}{details}"


def estimate(config: Config, traits: Traits) -> Estimate | None:
    """The estimate of a run on images or texts; None if its networks are not known."""
    if not {"finetune", "lora_rank", "path"} <= config["model"].keys():
        return None  # a plug-in adapter that is configured in another way
    is_text = traits["model"].get("media") == "texts"
    config = config if is_text else _within_run(config, traits)
    needs = texts_need if is_text else images_need
    try:
        return _estimate(config, traits, needs(config, traits))
    except LookupError:
        return None


def _within_run(config: Config, traits: Traits) -> Config:
    """The configuration with batches no larger than what a process has to fill them with."""
    processes = config["hardware"].get("processes")
    ranks = processes if isinstance(processes, int) else 1
    items, size = update_items(config, traits)
    samples = config["prompts_per_iteration"] * config["group_size"]
    drawn = max(samples, evaluation_samples(config))
    return {
        **config,
        "micro_batch": min(size, -(-items // ranks)),
        "sample_batch": min(config["sample_batch"], -(-drawn // ranks)),
    }


def _estimate(config: Config, traits: Traits, need: Need) -> Estimate:
    full = config["model"]["finetune"] == "full"
    shares, network = shares_of(config), need.network
    # adapters are in full in every process
    own = shares if full else ShardedShares(shares.samples)
    frozen = 0.0 if full else network.parameters * BYTES[config["precision"]["weights"]]
    kept, scoring = _rewards(config, traits)
    trained = _training_state(config, traits, need.trainable, own)
    resident = {
        "weights": shares.resident * frozen + trained.pop("weights"),
        **trained,
        **need.resident,
        "rewards": kept,
        "teachers": float(
            frozen_networks(config) * network.parameters * BYTES[config["precision"]["weights"]]
        ),
        "the program": 0.0 if on_gpu(config) else PROGRAM,
    }
    # batches of images are scored while further ones are drawn
    is_text = traits["model"].get("media") == "texts"
    overlaps = not is_text and config["scoring"]["background"] != "none"
    in_background = scoring if overlaps else 0.0
    sampled = shares.samples * need.drawn + shares.unsharded_network(network.parameters)
    gradient, scratch = _gradient(config, need.trainable, own)
    waiting = shares.samples * (need.drawn + need.items) + gradient + need.gradient
    blocks = shares.unsharded_blocks(network.parameters, network.blocks)
    is_away = need.is_away and on_gpu(config) and not shares.is_sharded
    leaves = resident["weights"] if is_away else 0.0
    phases = {
        **{name: size - leaves for name, size in need.visiting.items()},
        **{name: sampled + in_background + size for name, size in need.sampling.items()},
        "scoring": shares.samples * need.drawn + scoring,
        "learning": waiting + blocks + need.learning,
        "updating": waiting + scratch,
    }
    return Estimate(resident, phases, need.trainable, _host(config, resident, shares))


def _rewards(config: Config, traits: Traits) -> tuple[float, float]:
    """Weights of rewards that stay on this device, and those that are brought for scoring."""
    scoring = config["scoring"]
    if scoring["device"] is not None:
        return 0.0, 0.0
    weights = sum(reward_weights(config, traits, is_gpu=on_gpu(config)))
    return (0.0, weights) if scoring["offload"] else (weights, 0.0)


def _training_state(
    config: Config, traits: Traits, trainable: float, shares: ShardedShares
) -> dict[str, float]:
    """Bytes of trained weights, which are float32 in every precision, moments and weight sets."""
    own = shares.resident * trainable
    # those of adapters, which are small, stay on the device
    offloaded = config["memory"]["offload_weights"] and config["model"]["finetune"] == "full"
    sets = 0 if offloaded else len(weight_sets(config, traits))
    return {
        "weights": 4.0 * own,
        "Adam's moments": own * (2.0 if "8bit" in config["optimizer"]["_target_"] else 8.0),
        "weight sets": 4.0 * own * sets,
    }


def _gradient(config: Config, trainable: float, shares: ShardedShares) -> tuple[float, float]:
    """Bytes of the gradient, and of what the optimizer's step needs on top.

    On a GPU AdamW is fused unless the configuration says otherwise; torch's default loops over all
    tensors at once, with a copy as large as the gradient.
    """
    node = config["optimizer"]
    own = 1.0 if shares.deferred else shares.resident
    fused = node.get("fused")
    is_fused = "8bit" in node["_target_"] or (on_gpu(config) if fused is None else bool(fused))
    return 4.0 * own * trainable, 0.0 if is_fused else 4.0 * shares.resident * trainable


def _host(config: Config, resident: Mapping[str, float], shares: ShardedShares) -> float:
    """Main memory of one process beside what its device holds: the snapshot for a rollback, and
    the copy from which a checkpoint is written. A process of a sharded run has its shard alone.
    """
    if not on_gpu(config):
        return 0.0
    state = sum(resident[name] for name in ("Adam's moments", "weight sets"))
    state += resident["weights"] if config["model"]["finetune"] == "full" else 0.0
    kept = config["checkpoint"]
    copies = bool(kept.get("snapshot")) + bool(kept.get("background"))
    return copies * state + (12.0 * shares.network if shares.offloaded else 0.0)


@cache
def published_rewards() -> dict[str, int]:
    """Parameters of published networks, and of the part that reads an image."""
    table: dict[str, int] = json.loads(REWARDS_FILE.read_text(encoding="utf-8"))
    return table


def reward_weights(config: Config, traits: Traits, *, is_gpu: bool) -> list[float]:
    """Bytes of the networks of all rewards, also of those that only evaluations compute.

    A network whose size is not known before it was downloaded is left out.
    """
    return [
        size for _, node, _ in rewards_of(config, traits) for size in _weights(node, is_gpu=is_gpu)
    ]


def _weights(node: Mapping[str, Any], *, is_gpu: bool) -> Iterator[float]:
    element_size = BYTES.get(str(node.get("dtype", "auto")), 2 if is_gpu else 4)
    names = [str(node[key]) for key in PATHS if node.get(key)]
    if published := trait(node, "published_size"):
        names = [published]
    for name in names:
        whole = published_rewards().get(name) or _parameters_of(name)
        if trait(node, "image_half", False):
            whole = published_rewards().get(f"{name}/image", whole)
        if whole is not None:
            yield float(whole * element_size)
    for inner in node.values():  # a reward inside a reward, such as `rank.Rank`
        if isinstance(inner, Mapping) and "_target_" in inner and "parts" not in node:
            yield from _weights(inner, is_gpu=is_gpu)


def _parameters_of(path: str) -> int | None:
    """The parameters of a language model, or of a folder by its headers; None if not known."""
    if (found := language_model(path)) is not None:
        return found.parameters
    folder = folder_of(path)
    try:
        return None if folder is None else count_parameters(folder)
    except (OSError, ValueError, struct.error):
        return None


MAX_SUGGESTIONS = 3
HOST_WORTH_A_ROW = 8.0 * GIB
"""Main memory of a process from which on the plan mentions it."""
BF16 = {f"precision.{name}": "bfloat16" for name in ("weights", "rollout", "learning")}
SWITCHES = ("gradient_checkpointing", "offload_text", "offload_weights", "vae_slicing")
TEXT_SWITCHES = ("gradient_checkpointing", "offload_weights")
"""The switches of `memory` that language models read."""


def describe_memory(config: Config, found: Estimate | None) -> str:
    """The estimate in words, and the memory that the device has."""
    if found is None:
        return f"not known before {config['model'].get('path')} is loaded"
    available, device = available_memory(config)
    each = "in each process " if processes_of(config) > 1 else ""
    return f"{each}{found}" + (f"; {device} has {available / GIB:.0f}" if available else "")


def memory_notes(config: Config, traits: Traits, found: Estimate | None) -> Iterator[str]:
    """A warning if the run will not fit."""
    available, device = available_memory(config)
    if found is None or available is None or found.peak <= USABLE_FRACTION * available:
        return
    short = f"this needs about {found.peak / GIB:.1f} GiB and {device} has {available / GIB:.0f}"
    yield f"{short}{_in_words(suggestions(config, traits))}"


def explain_out_of_memory(error: BaseException, config: Config) -> str:
    """The message for an out-of-memory error: what was expected, which options help, the error."""
    traits, first_line = traits_of(config), str(error).strip().partition("\n")[0]
    found = estimate(config, traits)
    expected = "" if found is None else f"; the plan expected {found}"
    helps = _in_words(suggestions(config, traits))
    return f"out of memory{expected}{helps}\n{first_line.partition('. ')[0]}"


def _in_words(suggested: tuple[dict[str, float], float | None]) -> str:
    """Suggestions as the end of a sentence."""
    chosen, peak = suggested
    if not chosen:
        return ""
    if peak is None:
        return f". What helps most, in this order: {', '.join(chosen)}"
    listed = ", ".join(f"{word} (saves {saves / GIB:.1f})" for word, saves in chosen.items())
    return f". What helps most, in this order: {listed}, which leaves about {peak / GIB:.1f}"


def suggestions(config: Config, traits: Traits) -> tuple[dict[str, float], float | None]:
    """The overrides that lower the peak most, chosen greedily, each with the bytes that it saves on
    top of those before it; and the peak with all of them.

    The peak is None where the run can't be estimated; then the first options are suggested.
    """
    found = estimate(config, traits)
    if found is None:
        return dict.fromkeys([w for w, _ in savings(config, traits)][:MAX_SUGGESTIONS], 0.0), None
    chosen, now = dict[str, float](), found.peak
    while len(chosen) < MAX_SUGGESTIONS:
        changed = [(word, with_values(config, values)) for word, values in savings(config, traits)]
        peaks = [(e.peak, word, c) for word, c in changed if (e := estimate(c, traits))]
        peak, word, smaller = min(peaks, key=itemgetter(0), default=(now, "", config))
        if now - peak < 0.02 * now:
            break
        chosen[word] = now - peak
        config, now = smaller, peak
    return chosen, now


def savings(config: Config, traits: Traits) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each override that could save memory, with the values that it changes."""
    texts = traits["model"].get("media") == "texts"
    if "float32" in config["precision"].values():
        yield "precision=bf16", BF16
    for name in TEXT_SWITCHES if texts else SWITCHES:
        if not config["memory"][name]:
            yield f"memory.{name}=true", {f"memory.{name}": True}
    for name in ("micro_batch", "sample_batch"):
        if config[name] > 1:
            yield f"{name}=1", {name: 1}
    if config["model"].get("finetune") == "full":
        yield "model.finetune=lora", {"model.finetune": "lora"}
        if "8bit" not in config["optimizer"]["_target_"]:
            yield "optimizer=adamw_8bit", {"optimizer._target_": "bitsandbytes.optim.AdamW8bit"}


def traits_of(config: Config) -> Traits:
    """The class constants of a frozen configuration's components, by key."""
    signatures: dict[str, Signature] = {}
    deque(all_node_problems(config, signatures), maxlen=0)
    return {key: signature.class_constants for key, signature in signatures.items()}
