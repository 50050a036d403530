"""What is trained of a network, adapters or all of it, and its export: alike for every adapter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rlfactory.model.lora import Lora
from rlfactory.model.lora_init import Init
from rlfactory.model.memory import Memory
from rlfactory.model.weights import Weights

Part = Literal["transformer", "unet"]


def set_up(
    network: Any,
    finetune: Literal["lora", "full"],
    *,
    rank: int,
    alpha: float,
    targets: Sequence[str],
    init: Init = "gaussian",
    seed: int,
    memory: Memory | None = None,
) -> tuple[Weights, Lora | None]:
    """The tensors to train: those of new adapters on `network`, or all of its own.

    The network is then set up to be trained as `memory` says.
    """
    memory = memory or Memory()
    lora = None
    if finetune == "lora":
        lora = Lora(network, rank=rank, alpha=alpha, targets=targets, init=init, seed=seed)
    else:
        network.requires_grad_(True)
    memory.prepare(network)
    parameters = dict(network.named_parameters()) if lora is None else lora.parameters()
    adapters_off = None if lora is None else lora.off
    return Weights(parameters, adapters_off, offload=memory.offload_weights), lora


def whole(part: Part, finetune: Literal["lora", "full"]) -> Part | None:
    """The part of a pipeline all of which is trained, if any."""
    return part if finetune == "full" else None


def export(pipe: Any, part: Part, lora: Lora | None, folder: Path) -> None:
    """LoRA: one folder that both diffusers and PEFT load. Full: a folder named after the part."""
    if lora is None:
        getattr(pipe, part).save_pretrained(folder / part, safe_serialization=True)
        return
    layers, metadata = f"{part}_lora_layers", f"{part}_lora_adapter_metadata"
    pipe.save_lora_weights(folder, **{layers: lora.state_dict(), metadata: lora.metadata()})
    lora.save_for_peft(folder)
