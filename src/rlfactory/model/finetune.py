"""What is trained of a network, adapters or all of it, and its export: alike for every adapter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rlfactory.model.lora import Lora
from rlfactory.model.weights import Weights

Part = Literal["transformer", "unet"]


def set_up(
    network: Any,
    finetune: Literal["lora", "full"],
    *,
    rank: int,
    alpha: float,
    targets: Sequence[str],
    seed: int,
) -> tuple[Weights, Lora | None]:
    """The tensors to train: those of new adapters on `network`, or all of its own."""
    if finetune == "lora":
        lora = Lora(network, rank=rank, alpha=alpha, targets=targets, seed=seed)
        return Weights(lora.parameters(), lora.off), lora
    network.requires_grad_(True)
    return Weights(dict(network.named_parameters())), None


def export(pipe: Any, part: Part, lora: Lora | None, folder: Path) -> None:
    """LoRA: one folder that both diffusers and PEFT load. Full: a folder named after the part."""
    if lora is None:
        getattr(pipe, part).save_pretrained(folder / part, safe_serialization=True)
        return
    layers, metadata = f"{part}_lora_layers", f"{part}_lora_adapter_metadata"
    pipe.save_lora_weights(folder, **{layers: lora.state_dict(), metadata: lora.metadata()})
    lora.save_for_peft(folder)
