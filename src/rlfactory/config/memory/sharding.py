"""What one process of several holds: its samples, and its shard of a network that FSDP2 shards."""

from dataclasses import dataclass

from rlfactory.config.checks.base import Config
from rlfactory.hardware.environment import visible_gpus

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
UNSHARDED_BLOCKS = 3
"""Full blocks that FSDP2 holds while learning: one computes, one is prefetched, one's gradient."""
REDUCED_BYTES = 4.0
"""Bytes of a full block's gradient, which is summed over processes in float32."""


@dataclass(frozen=True)
class ShardedShares:
    """The fraction that one process holds of what all processes hold together; 1 if replicated.

    Attributes:
        samples: of an iteration's samples.
        network: of the network's weights, and of all that follows them where they are trained.
        gathered: bytes of a gathered parameter.
        offloaded: shards, gradients and moments are on the CPU.
        deferred: gradients are in full in each process until an update's last micro-batch.
    """

    samples: float = 1.0
    network: float = 1.0
    gathered: float = 4.0
    offloaded: bool = False
    deferred: bool = False

    @property
    def is_sharded(self) -> bool:
        """Whether the network is sharded at all."""
        return self.network < 1

    @property
    def resident(self) -> float:
        """The fraction of a sharded tensor that is on the device while nothing computes."""
        return 0.0 if self.offloaded else self.network

    def unsharded_network(self, parameters: float) -> float:
        """Bytes of the full network, gathered for passes that ranks make in different numbers.

        The gathered parameters are a copy in the dtype of the passes, beside the own shard.
        """
        return self.gathered * parameters if self.is_sharded else 0.0

    def unsharded_blocks(self, parameters: float, blocks: int) -> float:
        """Bytes of the blocks that are full at once while learning."""
        if not self.is_sharded:
            return 0.0
        return max(self.gathered, REDUCED_BYTES) * parameters * min(UNSHARDED_BLOCKS / blocks, 1.0)


def shares_of(config: Config) -> ShardedShares:
    """What a process holds: its part of the samples and, with `fsdp2`, its shard of the rest."""
    node = config["hardware"]
    processes = processes_of(config)
    if node.get("strategy") != "fsdp2" or processes == 1:
        return ShardedShares(1 / processes)
    dtypes = {BYTES[config["precision"][when]] for when in ("rollout", "learning")}
    return ShardedShares(
        samples=1 / processes,
        network=1 / int(node.get("shard_size") or processes),
        gathered=float(max(dtypes)),
        offloaded=bool(node.get("offload")),
        deferred=bool(node.get("defer_reduce")),
    )


def processes_of(config: Config) -> int:
    """The number of processes; `auto` counts the GPUs that this machine shows, at least one."""
    given = config["hardware"].get("processes", 1)
    return given if isinstance(given, int) else max(len(visible_gpus()), 1)
