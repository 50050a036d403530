"""Low-rank adapters on a network of diffusers or transformers, by PEFT."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from diffusers.training_utils import cast_training_params
from peft import LoraConfig, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rlfactory.model.lora_init import Init, first_values
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
    """Adapters in place on `network`, whose own weights are frozen; float32 whatever those are."""

    def __init__(
        self,
        network: Any,
        *,
        rank: int,
        alpha: float,
        targets: Sequence[str] | None,
        init: Init = "gaussian",
        seed: int = 0,
    ) -> None:
        if init == "orthogonal" and rank % 2:
            raise ModelError(f"model.lora_rank={rank}; orthogonal adapters have an even rank")
        _require_targets(network, targets or [])
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
        cast_training_params(network, torch.float32)
        self._begin(init, seed)

    @torch.no_grad()
    def _begin(self, init: Init, seed: int) -> None:
        """Draw what they begin with."""
        named = self.parameters()
        for i, (name, a) in enumerate(named.items()):
            if "lora_A" in name:
                b = named[name.replace("lora_A", "lora_B")]
                for matrix, value in zip((a, b), first_values(init, a, b, seed, i), strict=True):
                    matrix.copy_(value)

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


def _require_targets(network: nn.Module, targets: Sequence[str]) -> None:
    """Each name is that of a module, or the end of one's: PEFT asks for one match among them all,
    and a misspelt one would be left untrained in silence.
    """
    names = [name for name, _ in network.named_modules()]
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in names):
            raise ModelError(
                f"model.lora_targets={[*targets]}: no module of {type(network).__name__} is named"
                f" {target}; among those that are: {', '.join(_adaptable(network))}"
            )


def _adaptable(network: nn.Module, count: int = 8) -> list[str]:
    """The commonest names of its matrices, without the numbers of the blocks that hold them."""
    matrices = [name for name, m in network.named_modules() if isinstance(m, nn.Linear | Conv1D)]
    ends = Counter(re.sub(r"^.*\.\d+\.(?=[a-z])", "", name) for name in matrices)
    return [name for name, _ in ends.most_common(count)]


def merge_adapters(network: nn.Module) -> None:
    """Make adapters part of the matrices, in place; those that are switched off are dropped."""
    for name, layer in [*network.named_modules()]:
        if isinstance(layer, BaseTunerLayer):
            if not layer.disable_adapters:
                layer.merge()
            network.set_submodule(name, layer.get_base_layer())
