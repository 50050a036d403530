"""What the memory estimates of images and of texts have in common: their result, rewards, trained
weights, gradients and main memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.memory.device_memory import GIB, on_gpu
from rlfactory.config.memory.rewards import reward_networks
from rlfactory.config.memory.run_shape import weight_sets
from rlfactory.config.memory.sharding import ShardedShares

PROGRAM = 1.0 * GIB
"""Main memory of the imported libraries; counted only where the device is the CPU."""


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


@dataclass(frozen=True)
class RewardMemory:
    """The memory of rewards' networks: always there, beside sampling, and while scoring."""

    resident: float
    meanwhile: float
    scoring: float

    @classmethod
    def of(cls, config: Config, traits: Traits) -> "RewardMemory":
        """That of a configuration; nothing where rewards compute on another device."""
        scoring = config["scoring"]
        networks = reward_networks(config, traits, is_gpu=on_gpu(config))
        if scoring["device"] is not None or not networks:
            return cls(0.0, 0.0, 0.0)
        weights = sum(network.weights for network in networks)
        activations = max(network.activations for network in networks)
        brought = weights if scoring["offload"] else 0.0
        in_background = activations + brought if scoring["background"] != "none" else 0.0
        return cls(weights - brought, in_background, activations + brought)


def replicated(shares: ShardedShares) -> ShardedShares:
    """The shares of what every process has in full, such as adapters."""
    return ShardedShares(shares.samples)


def training_state(
    config: Config, traits: Traits, trainable: float, shares: ShardedShares
) -> dict[str, float]:
    """Bytes of trained weights, which are float32 in every precision, moments and weight sets."""
    own = shares.resident * trainable
    sets = len(weight_sets(config, traits))
    # those of adapters, which are small, stay on the device
    offloaded = config["memory"]["offload_weights"] and config["model"]["finetune"] == "full"
    return {
        "weights": 4.0 * own,
        "Adam's moments": own * (2.0 if "8bit" in config["optimizer"]["_target_"] else 8.0),
        "weight sets": 0.0 if offloaded else 4.0 * own * sets,
    }


def gradient_bytes(config: Config, trainable: float, shares: ShardedShares) -> tuple[float, float]:
    """Bytes of the gradient, and of what the optimizer's step needs on top.

    On a GPU AdamW is fused unless the configuration says otherwise; torch's default loops over all
    tensors at once, with a copy as large as the gradient.
    """
    node = config["optimizer"]
    own = 1.0 if shares.deferred else shares.resident
    fused = node.get("fused")
    is_fused = "8bit" in node["_target_"] or (on_gpu(config) if fused is None else bool(fused))
    return 4.0 * own * trainable, 0.0 if is_fused else 4.0 * shares.resident * trainable


def host_bytes(config: Config, resident: Mapping[str, float], shares: ShardedShares) -> float:
    """Main memory of one process beside what its device holds: the snapshot for a rollback, and
    the copy from which a checkpoint is written. A process of a sharded run has its shard alone.
    """
    if not on_gpu(config):
        return 0.0
    state = sum(resident[name] for name in ("Adam's moments", "weight sets"))
    state += resident["weights"] if config["model"]["finetune"] == "full" else 0.0
    kept = config["checkpoint"]
    copies = bool(kept.get("snapshot")) + bool(kept.get("background"))
    offloaded = 12.0 * shares.network if shares.offloaded else 0.0
    return copies * state + offloaded
