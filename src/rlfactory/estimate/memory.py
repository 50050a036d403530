"""The most memory that a run will hold at once, phase by phase, by arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory.cost import items_per_sample, reference_of
from rlfactory.crossings.base import Config, Traits, penalties, steps_trained
from rlfactory.estimate.activations import (
    Manner,
    Taken,
    UnknownNetwork,
    decoded,
    family_of,
    taken,
)
from rlfactory.estimate.division import Division, division_of
from rlfactory.estimate.folder import NETWORKS, Part, parts_of
from rlfactory.estimate.trained import trained

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
PROGRAM = 1.0 * GIB
"""What torch, diffusers and the rest are in a process; on a GPU it is not on the device."""
ENCODING = 0.04
"""What encoding a prompt takes, as a share of the encoders: of T5-XXL 0.3 GiB in half precision."""


@dataclass(frozen=True)
class Estimate:
    """Bytes: what is there all the time, by name, and what each phase has on top of it."""

    resident: Mapping[str, float]
    phases: Mapping[str, float]
    trained: float

    @property
    def phase(self) -> str:
        """The one with the most."""
        return max(self.phases, key=lambda name: self.phases[name])

    @property
    def peak(self) -> float:
        """The most, in bytes."""
        return sum(self.resident.values()) + self.phases[self.phase]

    def __str__(self) -> str:
        named = {**self.resident, self.phase: self.phases[self.phase]}
        largest = sorted(named.items(), key=lambda entry: -entry[1])
        shown = [f"{name} {size / GIB:.1f}" for name, size in largest if size >= 0.05 * GIB]
        told = f": {', '.join(shown)}" if shown else ""
        return f"about {self.peak / GIB:.1f} GiB at most, while {self.phase}{told}"


def estimate(config: Config, traits: Traits) -> Estimate | None:
    """The estimate of a run on images; None where its networks are not known."""
    parts = parts_of(str(config["model"].get("path")))
    network = next((parts[name] for name in NETWORKS if name in parts), None) if parts else None
    if parts is None or network is None or "vae" not in parts:
        return None
    try:
        return _estimate(config, traits, parts, network)
    except UnknownNetwork:
        return None


def _estimate(config: Config, traits: Traits, parts: Mapping[str, Part], network: Part) -> Estimate:
    model, memory = config["model"], config["memory"]
    number = trained(network, model["finetune"], model["lora_rank"], model["lora_targets"])
    encoders = sum(p.parameters for name, p in parts.items() if name.startswith("text_encoder"))
    encoders *= _frozen(config)
    vae = 4.0 * parts["vae"].parameters
    sets = _sets(config, traits)
    division = division_of(config)
    offloaded = {name for name in ("text", "vae", "weights") if memory[f"offload_{name}"]}
    resident = {
        "weights": division.numbers * _weights(config, network, number),
        "Adam's moments": division.moments * number * _moments(config),
        "the optimiser's weights": division.copy * 4 * number,
        "weight sets": 0.0 if "weights" in offloaded else division.numbers * 4 * number * len(sets),
        "text encoders": 0.0 if "text" in offloaded else encoders,
        "autoencoder": 0.0 if "vae" in offloaded else vae,
        "the program": 0.0 if on_gpu(config) else PROGRAM,
    }
    kept = division.samples * _rollout(config, traits, parts, network)
    gradient = division.gradient * 4 * number
    scratch = 0.0 if _is_fused(config) else gradient
    passing = _passing(division, number, network, bool(sets - {"ema"}))
    phases = {
        "encoding": ENCODING * encoders + (encoders if "text" in offloaded else 0.0),
        "sampling": kept + division.whole(number) + _sampling(config, parts, network, number),
        "decoding": kept + _decoding(config, parts["vae"]) + (vae if "vae" in offloaded else 0.0),
        "learning": kept + gradient + passing + _learning(config, parts, network, number),
        "updating": kept + gradient + scratch,
    }
    return Estimate(resident, phases, number)


def on_gpu(config: Config) -> bool:
    """Whether the run is meant for a GPU, as far as that is known here."""
    from rlfactory.estimate.device import has_gpu

    node = config["hardware"]
    device, given = node.get("device"), node.get("memory_gb")
    return device == "cuda" or (device != "cpu" and (has_gpu() or given is not None))


def _frozen(config: Config) -> int:
    """Bytes of a frozen number."""
    return BYTES[config["precision"]["weights"]]


def _is_half(config: Config, when: str) -> bool:
    return BYTES[config["precision"][when]] == 2


def _weights(config: Config, network: Part, number: float) -> float:
    """The network's own, and its adapters'; what is trained is float32, whatever is not."""
    if config["model"]["finetune"] == "full":
        return 4 * number
    return network.parameters * _frozen(config) + 4 * number


def _moments(config: Config) -> float:
    """Bytes of an optimiser's state for each trained number; SGD's is counted as Adam's."""
    return 2.0 if "8bit" in config["optimizer"]["_target_"] else 8.0


def _is_fused(config: Config) -> bool:
    node = config["optimizer"]
    return bool(node.get("fused")) or "8bit" in node["_target_"]


def _passing(division: Division, number: float, network: Part, others: bool) -> float:
    """What learning gathers of a divided network: all of it where `others` predict as well."""
    return division.whole(number) if others else division.block(number, network.config)


def _sets(config: Config, traits: Traits) -> set[str]:
    """The weight sets that are kept beside the policy, each a copy of what is trained."""
    names = {"ema", *(traits["algo"].get("compares") or ()), config["algo"].get("behaviour")}
    names |= {reference_of(node) for _, node, _ in penalties(config, traits)}
    spared = {None, "policy"}
    if config["model"]["finetune"] == "lora":
        spared.add("reference")  # which is the network without its adapters
    return names - spared


def _manner(config: Config, when: str) -> Manner:
    model = config["model"]
    return Manner(
        half=_is_half(config, when),
        full=model["finetune"] == "full",
        rank=model["lora_rank"],
        again=bool(config["memory"]["gradient_checkpointing"]),
    )


def _edge(parts: Mapping[str, Part], size: int) -> int:
    """Latents a side."""
    return int(size // 2 ** (len(parts["vae"].config["block_out_channels"]) - 1))


def _text(config: Config, parts: Mapping[str, Part], network: Part) -> int:
    """Tokens of text that the network sees."""
    model, encoder = config["model"], parts.get("text_encoder")
    clip = int(encoder.config.get("max_position_embeddings", 77)) if encoder else 77
    of = {"flux": 0, "sd3": clip, "unet": clip}
    return of[family_of(network.config)] + int(model.get("text_tokens", 0))


def _item(config: Config, parts: Mapping[str, Part], network: Part, size: int, when: str) -> Taken:
    text = _text(config, parts, network)
    return taken(network.config, _edge(parts, size), text, _manner(config, when))


def _rows(config: Config) -> int:
    """Evaluations that a prediction is."""
    return 2 if (config["model"].get("guidance") or 0) > 1 else 1


def _largest(config: Config) -> int:
    """Pixels a side, in training or in evaluations."""
    return int(max(config["model"]["size"], config["evaluation"]["size"] or 0))


def _copies(config: Config, network: Part, when: str) -> float:
    """The half-precision copies that autocast makes of float32 weights."""
    model = config["model"]
    is_exact = model["finetune"] == "full" or _frozen(config) == 4
    return 2.0 * network.parameters if is_exact and _is_half(config, when) else 0.0


def _sampling(config: Config, parts: Mapping[str, Part], network: Part, number: float) -> float:
    each = _item(config, parts, network, _largest(config), "rollout").sampling
    full = config["model"]["finetune"] == "full"
    copies = _copies(config, network, "rollout") if full else 0.0
    return float(config["sample_batch"] * _rows(config) * each + copies)


def _learning(config: Config, parts: Mapping[str, Part], network: Part, number: float) -> float:
    item = _item(config, parts, network, config["model"]["size"], "learning")
    again = config["memory"]["gradient_checkpointing"]
    full = config["model"]["finetune"] == "full"
    copies = 0.0 if again and not full else _copies(config, network, "learning")
    return float(config["micro_batch"] * _rows(config) * (item.saved + item.working) + copies)


def _decoding(config: Config, vae: Part) -> float:
    """Slices are single pictures; tiles are of the size that the autoencoder learned on."""
    memory, size = config["memory"], _largest(config)
    pictures = 1 if memory["vae_slicing"] else config["sample_batch"]
    if memory["vae_tiling"]:
        size = min(size, int(vae.config.get("sample_size") or size))
    return decoded(vae.config, size, pictures)


def _rollout(config: Config, traits: Traits, parts: Mapping[str, Part], network: Part) -> float:
    """An iteration's samples as they wait to be learned from: latents, texts, steps or noises."""
    samples = config["prompts_per_iteration"] * config["group_size"]
    edge, own = _edge(parts, config["model"]["size"]), parts["vae"].config
    latents = 4.0 * own["latent_channels"] * edge**2
    width = network.config.get("joint_attention_dim") or network.config["cross_attention_dim"]
    text = _text(config, parts, network) * width * _frozen(config)
    each = items_per_sample(config, traits)
    if traits["algo"].get("needs") == "transitions":
        stored = 2 * BYTES[config["latent_storage"]] / 4 * steps_trained(config)
    else:
        stored = 2.0 * each
    return float(samples * (latents * (1 + stored) + text))


def with_changes(config: Config, changes: Mapping[str, Any]) -> Config:
    """The configuration with values at dotted keys replaced; a mapping is merged into the old."""
    changed = dict(config)
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        inner = changed.get(head)
        if rest:
            changed[head] = with_changes(inner if isinstance(inner, Mapping) else {}, {rest: value})
        elif isinstance(value, Mapping) and isinstance(inner, Mapping):
            changed[head] = {**inner, **value}
        else:
            changed[head] = value
    return changed
