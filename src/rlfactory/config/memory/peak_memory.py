"""Peak memory of a run, estimated from its configuration without torch: weights, gradient, moments,
weight sets, and the most activations; and the options that save most where it does not fit.

Activations are measured (`model_parts`). `rlfactory estimate` counts all on the real engine.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.evaluation_prompts import evaluation_samples
from rlfactory.config.memory.devices import (
    GIB,
    USABLE_FRACTION,
    available_memory,
    on_gpu,
    processes_of,
)
from rlfactory.config.memory.model_parts import BYTES, parts_of
from rlfactory.config.memory.phases import gathers_at_once, image_use, is_sharded, text_use
from rlfactory.config.nfe import frozen_networks, update_items, weight_sets
from rlfactory.config.schema.signature import Signature, trait
from rlfactory.config.schema_problems import all_node_problems
from rlfactory.utils.dotted_keys import with_values

PROGRAM = 1.0 * GIB
"""Main memory of the imported libraries; counted only where the device is the CPU."""


Bytes = Mapping[str, float]
"""Bytes of one process by what they hold, whose sum is its peak."""


def estimate(config: Config, traits: Traits) -> Bytes | None:
    """The memory of a run on images or texts at its peak; None if its networks are not known."""
    model, memory, optimizer = config["model"], config["memory"], config["optimizer"]
    if not {"finetune", "lora_rank", "path"} <= model.keys():
        return None  # a plug-in adapter that is configured in another way
    config = _within_run(config, traits)
    is_text = traits["model"].get("media") == "texts"
    try:
        use = (text_use if is_text else image_use)(config, traits)
    except LookupError:
        return None
    full, element = model["finetune"] == "full", BYTES[config["precision"]["weights"]]
    shard, gradient_shard = shards_of(config)
    trained = 4.0 * use.trainable * (shard if full else 1.0)  # in float32
    frozen = element * (use.parameters - full * use.trainable)
    is_8bit, fused = "8bit" in optimizer["_target_"], optimizer.get("fused")
    # torch's default loops over all tensors at once, with a copy as large as the gradient
    is_fused = is_8bit or (on_gpu(config) if fused is None else bool(fused))
    # those of adapters, which are small, stay on the device
    sets = 0 if full and memory["offload_weights"] else len(weight_sets(config, traits))
    rewards, scoring = _rewards(config), config["scoring"]
    brought = rewards if scoring["offload"] else 0.0
    # batches of images are scored while further ones are drawn
    overlaps = not is_text and scoring["background"] != "none"
    sampling = use.sampling + brought if overlaps else max(use.sampling, brought)
    gradient = 4.0 * use.trainable * (gradient_shard if full else 1.0)
    learning = max(use.learning, 0.0 if is_fused else trained)
    learns = gradient + learning >= sampling
    return {
        "weights": shard * frozen + trained,
        "gradient": gradient if learns else 0.0,
        "Adam's moments": trained * (0.5 if is_8bit else 2.0),
        "weight sets": trained * sets,
        "learning" if learns else "sampling": learning if learns else sampling,
        "rewards": rewards - brought,
        "teachers": float(element * frozen_networks(config) * use.parameters),
        "the program": 0.0 if on_gpu(config) else PROGRAM,
        **use.others,
    }


def peak_of(found: Bytes) -> float:
    """Peak memory in bytes."""
    return sum(found.values())


def in_words(found: Bytes) -> str:
    """The peak, and its largest parts."""
    largest = sorted(found.items(), key=lambda part: -part[1])
    shown = [f"{name} {size / GIB:.1f}" for name, size in largest if size >= 0.05 * GIB]
    details = f": {', '.join(shown)}" if shown else ""
    return f"about {peak_of(found) / GIB:.1f} GiB at most{details}"


def shards_of(config: Config) -> tuple[float, float]:
    """The fractions of a network and of its gradient that a process has while nothing computes."""
    node = config["hardware"]
    if not is_sharded(config):
        return 1.0, 1.0
    shard = 0.0 if node.get("offload") else 1 / int(node.get("shard_size") or processes_of(config))
    return shard, 1.0 if node.get("defer_reduce") or gathers_at_once(config) else shard


def _within_run(config: Config, traits: Traits) -> Config:
    """The configuration with batches no larger than what a process has to fill them with."""
    ranks, (items, size) = processes_of(config), update_items(config, traits)
    samples = config["prompts_per_iteration"] * config["group_size"]
    drawn = max(samples, evaluation_samples(config))
    return {
        **config,
        "micro_batch": min(size, -(-items // ranks)),
        "sample_batch": min(config["sample_batch"], -(-drawn // ranks)),
    }


@cache
def published_rewards() -> dict[str, int]:
    """Parameters of published networks of rewards."""
    file = Path(__file__).with_name("rewards.json")
    return json.loads(file.read_text(encoding="utf-8"))


def _rewards(config: Config) -> float:
    """Bytes of the networks of all rewards on this device, those of evaluations among them."""
    if config["scoring"]["device"] is not None:
        return 0.0
    return sum(reward_weights(config[k], is_gpu=on_gpu(config)) for k in ("reward", "eval_rewards"))


def reward_weights(node: object, *, is_gpu: bool) -> float:
    """Bytes of the networks of a reward and of the rewards in it.

    A network whose size is not known before it was downloaded is left out.
    """
    if not isinstance(node, Mapping):
        return 0.0
    inner = sum(reward_weights(value, is_gpu=is_gpu) for value in node.values())
    published = trait(node, "published_size")
    paths = [node[key] for key in ("path", "clip_path") if "_target_" in node and node.get(key)]
    counts = (_parameters(str(name)) for name in ([published] if published else paths))
    return inner + BYTES.get(str(node.get("dtype")), 2 if is_gpu else 4) * sum(counts)


def _parameters(name: str) -> int:
    known = published_rewards().get(name)
    return known or sum(part.parameters for part in (parts_of(name) or {}).values())


MAX_SUGGESTIONS = 3
REMEDIES: Mapping[str, Mapping[str, Any]] = {
    "precision=bf16": {f"precision.{k}": "bfloat16" for k in ("weights", "rollout", "learning")},
    **{
        f"memory.{name}=true": {f"memory.{name}": True}
        for name in ("gradient_checkpointing", "offload_weights", "offload_text", "vae_slicing")
    },
    **{f"{name}=1": {name: 1} for name in ("micro_batch", "sample_batch")},
    "model.finetune=lora": {"model.finetune": "lora"},
    "optimizer=adamw_8bit": {"optimizer._target_": "bitsandbytes.optim.AdamW8bit"},
}
"""Overrides that may save memory, with the values that they change."""


def describe_memory(config: Config, found: Bytes | None) -> str:
    """The estimate in words, and the memory that the device has."""
    if found is None:
        return f"not known before {config['model'].get('path')} is loaded"
    available, device = available_memory(config)
    each = "in each process " if processes_of(config) > 1 else ""
    has = f"; {device} has {available / GIB:.0f}" if available else ""
    return f"{each}{in_words(found)}{has}"


def memory_notes(config: Config, traits: Traits, found: Bytes | None) -> Iterator[str]:
    """A warning if the run will not fit."""
    available, device = available_memory(config)
    if found is None or available is None or peak_of(found) <= USABLE_FRACTION * available:
        return
    needed = f"this needs about {peak_of(found) / GIB:.1f} GiB"
    yield f"{needed} and {device} has {available / GIB:.0f}{_remedies(config, traits)}"


def explain_out_of_memory(error: BaseException, config: Config) -> str:
    """The message for an out-of-memory error: what was expected, which options help, the error."""
    traits, first_line = traits_of(config), str(error).strip().partition("\n")[0]
    found = estimate(config, traits)
    expected = "" if found is None else f"; the plan expected {in_words(found)}"
    return f"out of memory{expected}{_remedies(config, traits)}\n{first_line.partition('. ')[0]}"


def _remedies(config: Config, traits: Traits) -> str:
    """Suggestions as the end of a sentence."""
    words = suggestions(config, traits)
    return f". What helps most, in this order: {', '.join(words)}" if words else ""


def suggestions(config: Config, traits: Traits) -> list[str]:
    """The overrides that lower the peak most, each with what it saves alone, if that is known."""
    changed = {word: with_values(config, values) for word, values in REMEDIES.items()}
    found = estimate(config, traits)
    if found is None:
        return [word for word, other in changed.items() if other != config][:MAX_SUGGESTIONS]
    smaller = {word: estimate(other, traits) for word, other in changed.items()}
    saved = {word: peak_of(found) - peak_of(b) for word, b in smaller.items() if b is not None}
    most = sorted(saved, key=lambda word: -saved[word])[:MAX_SUGGESTIONS]
    worth = [word for word in most if saved[word] >= 0.02 * peak_of(found)]
    return [f"{word} (saves {saved[word] / GIB:.1f})" for word in worth]


def traits_of(config: Config) -> Traits:
    """The class constants of a frozen configuration's components, by key."""
    signatures: dict[str, Signature] = {}
    deque(all_node_problems(config, signatures), maxlen=0)
    return {key: signature.class_constants for key, signature in signatures.items()}
