"""What is trained of a network, adapters or all of it, and its export: alike for every adapter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rlfactory.model.lora import Lora, merge_adapters
from rlfactory.model.lora_init import Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipeline import no_bars
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


def export_whole(pipe: Any, part: Part, lora: Lora | None, folder: Path) -> None:
    """A pipeline folder with all parts; adapters become part of the network, here too."""
    if lora is not None:
        merge_into(getattr(pipe, part))
    with no_bars():
        pipe.save_pretrained(folder, safe_serialization=True)


def merge_into(network: Any) -> None:
    """Make adapters part of the matrices, so that the network saves as one without any."""
    merge_adapters(network)
    network._hf_peft_config_loaded = False  # it would be saved as adapters alone
