"""What a process has of a run's memory where it is one of several."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory.crossings.base import Config

NUMBER = 4.0
"""Bytes of a number of a divided network: what is trained is float32."""
AT_ONCE = 3
"""Blocks that learning has whole: one that computes, one on its way here, one's gradient."""


@dataclass(frozen=True)
class Division:
    """The share of all `samples`, and of the trained numbers' `moments`, `gradient` and themselves
    (`numbers`; and every other weight set): 1 where they are whole. `copy` is the share that an
    optimiser of ZeRO's keeps once more.
    """

    samples: float = 1.0
    moments: float = 1.0
    gradient: float = 1.0
    numbers: float = 1.0
    copy: float = 0.0

    def whole(self, trained: float) -> float:
        """Bytes that a network of `trained` numbers takes beside a process's own part of it."""
        return NUMBER * trained * (1 - self.numbers)

    def block(self, trained: float, network: Mapping[str, Any]) -> float:
        """The same of the blocks that are whole at once in a pass with a gradient."""
        return self.whole(trained) * min(AT_ONCE / blocks(network), 1.0)


def division_of(config: Config) -> Division:
    """How `hardware` has it: samples by all processes, the rest by `fsdp2` or by ZeRO's stages."""
    node = config["hardware"]
    part = 1 / int(node.get("processes", 1))
    if node.get("strategy") == "fsdp2":
        return Division(part, part, part, part)
    if (stage := node.get("zero")) is None:
        return Division(part)
    offloaded = node["offload"] == "cpu" and node["device"] != "cpu"
    return Division(
        samples=part,
        moments=0.0 if offloaded else part,
        gradient=part if stage > 1 else 1.0,
        numbers=part if stage > 2 else 1.0,
        copy=0.0 if offloaded else part,
    )


def blocks(network: Mapping[str, Any]) -> int:
    """Blocks of a transformer or a U-Net that are gathered one after another."""
    if "block_out_channels" in network:
        return 2 * len(network["block_out_channels"])
    return int(network["num_layers"]) + int(network.get("num_single_layers", 0))
