"""What a model needs in one process, and how its network is used there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlfactory.config.checks.base import Config
from rlfactory.config.memory.model_parts import Part
from rlfactory.config.memory.sharding import BYTES, shares_of


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
        scores_meanwhile: whether batches are scored while further ones are drawn.
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
    scores_meanwhile: bool = False
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
