"""Low-rank adapters on a network of diffusers or transformers, by PEFT."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rlfactory import keyed
from rlfactory.model.pipeline import ModelError

# The eight attention projections of a joint block that every published recipe adapts.
ATTENTION_PROJECTIONS = [
    "attn.to_q",
    "attn.to_k",
    "attn.to_v",
    "attn.to_out.0",
    "attn.add_q_proj",
    "attn.add_k_proj",
    "attn.add_v_proj",
    "attn.to_add_out",
]


class Lora:
    """Adapters in place on `network`, whose own weights are frozen."""

    def __init__(
        self,
        network: Any,
        *,
        rank: int,
        alpha: float,
        targets: Sequence[str] | None,
        seed: int = 0,
    ) -> None:
        self.network = network
        self.config = LoraConfig(
            r=rank,
            lora_alpha=alpha,
            target_modules=list(targets) if targets else None,
            # GPT-2 keeps its matrices the other way round
            fan_in_fan_out=any(isinstance(module, Conv1D) for module in network.modules()),
        )
        network.requires_grad_(False)
        try:
            network.add_adapter(self.config)
        except ValueError as error:
            raise ModelError(f"model.lora_targets={targets}: {error}") from error
        self._draw(seed)

    @torch.no_grad()
    def _draw(self, seed: int) -> None:
        """PEFT's `gaussian` start, but keyed: PEFT takes the global generator. B stays zero."""
        for i, (name, matrix) in enumerate(self.parameters().items()):
            if "lora_A" in name:
                drawn = keyed.normal(seed, "lora", [], [i], matrix.shape)[0]
                matrix.copy_(drawn / self.config.r)

    def parameters(self) -> dict[str, nn.Parameter]:
        """The adapters' matrices by name."""
        return {k: p for k, p in self.network.named_parameters() if p.requires_grad}

    @contextmanager
    def off(self) -> Iterator[None]:
        """The network without its adapters."""
        self.network.disable_adapters()
        try:
            yield
        finally:
            self.network.enable_adapters()

    def state_dict(self) -> dict[str, Tensor]:
        """The adapters as PEFT names them, contiguous and on the CPU."""
        state = get_peft_model_state_dict(self.network)
        return {key: tensor.detach().cpu().contiguous() for key, tensor in state.items()}

    def metadata(self) -> dict[str, object]:
        """PEFT's configuration as plain values: without it a loader guesses the scale, wrongly."""
        values = self.config.to_dict()
        return {k: sorted(v) if isinstance(v, set) else v for k, v in values.items()}

    def save_for_peft(self, folder: Path) -> None:
        """Write the files that `PeftModel.from_pretrained` opens."""
        state = {f"base_model.model.{key}": tensor for key, tensor in self.state_dict().items()}
        save_file(state, folder / "adapter_model.safetensors", {"format": "pt"})
        (folder / "adapter_config.json").write_text(json.dumps(self.metadata(), indent=2))


def merge_adapters(network: nn.Module) -> None:
    """Make adapters part of the matrices, in place; those that are switched off are dropped."""
    for name, layer in [*network.named_modules()]:
        if isinstance(layer, BaseTunerLayer):
            if not layer.disable_adapters:
                layer.merge()
            network.set_submodule(name, layer.get_base_layer())
