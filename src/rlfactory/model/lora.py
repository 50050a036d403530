"""LoRA: injects low-rank adapters into a diffusers or transformers network, by PEFT."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as PEFT_TARGETS
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rlfactory.model.merged_start import Start, stacked
from rlfactory.model.pipelines.adapter_files import (
    ALL_LINEAR,
    ending,
    is_target,
    shared_adapter,
    shared_weight,
    with_all_linear,
)
from rlfactory.utils import rng
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import LoraTargets

# Initial values, all with B A = 0, so that training starts at the base model. Initialisations that
# change the base weights (PiSSA, OLoRA) are left out on purpose: without its adapters such a
# network is no longer the reference policy, nor the base model that others load an export onto.
Init = Literal["gaussian", "kaiming", "orthogonal"]

SINGLE_PROJECTIONS = ["attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0"]
"""Of the attention of blocks with one stream of tokens."""
ATTENTION_PROJECTIONS = [
    *SINGLE_PROJECTIONS,
    *("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out"),
]
"""Of a joint block, the eight that every published recipe adapts."""
CROSS_ATTENTION_PROJECTIONS = [
    f"{attention}.{projection}"
    for attention in ("attn1", "attn2")
    for projection in ("to_q", "to_k", "to_v", "to_out.0")
]
"""Of blocks with self-attention and attention to the text."""


class Lora:
    """Adapters injected in place into `network`, whose own weights are frozen.

    Adapters are float32 whatever the dtype of the network. `targets` are module names or their
    endings, `all-linear` for all linear layers but the output projection, or, as a text, a regular
    expression of whole names, all as PEFT has them; None is its choice for the architecture, or all
    linear layers where it has none. Stacked experts, and layers whose weights are read past them,
    are none. Where `network` is on `meta` and the model is to run on another `device`, adapters get
    their values here, on the CPU. No module within one named `frozen` is adapted.

    Raises:
        ModelError: a target matches no module, stacked experts or one that shares its weight with
            another, or an odd `rank` with `init="orthogonal"`.

    Attributes:
        start: adapters that were merged into `network`, which are exported with its own as one.
    """

    def __init__(
        self,
        network: Any,
        *,
        rank: int,
        alpha: float,
        targets: LoraTargets,
        init: Init = "gaussian",
        seed: int = 0,
        device: torch.device | None = None,
        frozen: str | None = None,
    ) -> None:
        if init == "orthogonal" and rank % 2:
            raise ModelError(f"model.lora_rank={rank}; orthogonal adapters have an even rank")
        targets = with_all_linear(targets)
        if not targets:  # a network of diffusers has no such type
            kind = getattr(network.config, "model_type", None)
            targets = PEFT_TARGETS.get(kind, ALL_LINEAR)
        if targets == ALL_LINEAR:
            targets = _without_special(network) or ALL_LINEAR
        if not isinstance(targets, str):
            _require_targets(network, targets)
        self.network = network
        self.start: Start = {}
        self.config = LoraConfig(
            r=rank,
            lora_alpha=alpha,
            target_modules=targets if isinstance(targets, str) else list(targets),
            exclude_modules=rf"(.*\.)?{frozen}\..*" if frozen else None,
            # GPT-2's Conv1D stores its matrices transposed
            fan_in_fan_out=any(isinstance(module, Conv1D) for module in network.modules()),
        )
        network.requires_grad_(False)
        try:
            network.add_adapter(self.config)
        except ValueError as error:
            raise ModelError(f"model.lora_targets={targets}: {error}") from error
        _require_own_weights(network)
        # small updates would be lost in the half precision that the frozen weights may have
        for parameter in filter(lambda p: p.requires_grad, network.parameters()):
            parameter.data = parameter.float()
        self.layers = [m for m in network.modules() if isinstance(m, BaseTunerLayer)]
        for layer in self.layers:
            # Autocast casts inputs to its dtype. PEFT would first cast those in half precision to
            # the adapters' float32, and autocast them back: the same bits by two more kernels.
            layer.cast_input_dtype_enabled = False
        if device is not None and device.type != "meta":
            _materialise(network)
        self._initialise(init, seed)

    @torch.no_grad()
    def _initialise(self, init: Init, seed: int) -> None:
        named = self.parameters()
        for i, (name, a) in enumerate(named.items()):
            if re.search("lora_(embedding_)?A", name):
                b = named[re.sub(r"lora_(embedding_)?A", r"lora_\1B", name)]
                values = initial_values(init, a, b, seed, i)
                for matrix, value in zip((a, b), values, strict=True):
                    matrix.copy_(value)

    def parameters(self) -> dict[str, nn.Parameter]:
        """The adapters' matrices by name."""
        return {k: p for k, p in self.network.named_parameters() if p.requires_grad}

    @contextmanager
    def off(self) -> Iterator[None]:
        """Disable the adapters within the `with`: the network is then the base model."""
        # `network.disable_adapters` walks over all modules, and over all adapters' parameters,
        # whose gradients need not be disabled: a pass that leaves adapters out gives them none
        for layer in self.layers:
            layer._disable_adapters = True
        try:
            yield
        finally:
            for layer in self.layers:
                layer._disable_adapters = False

    @contextmanager
    def merged(self) -> Iterator[None]:
        """Within the `with`, layers compute with their adapters merged into one weight.

        For passes without gradient. The base weights are set aside, and are the same tensors
        afterwards. A merged weight is rounded to the dtype of the base weights, whose spacing in
        half precision is larger than most of what adapters add to a weight.
        """
        weights = [layer.get_base_layer().weight for layer in self.layers]
        base = [weight.data for weight in weights]
        try:
            for layer, weight in zip(self.layers, weights, strict=True):
                weight.data = _merged_weight(layer, weight.data)
            with self.off():
                yield
        finally:
            for weight, values in zip(weights, base, strict=True):
                weight.data = values

    def state_dict(self, values: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """The adapters by PEFT's names, contiguous and on the CPU.

        `values` are written in the place of those in the network, by the names of `parameters`.
        """
        own = None if values is None else dict(values)
        state = get_peft_model_state_dict(self.network, state_dict=own)
        state = {key: tensor.detach().cpu().contiguous() for key, tensor in state.items()}
        scale = self.config.lora_alpha / self.config.r
        return stacked(state, scale, self.start) if self.start else state

    def metadata(self) -> dict[str, Any]:
        """PEFT's configuration as plain values: without it a loader assumes a wrong scale."""
        values = self.config.to_dict()
        if self.start:
            rank = self.config.r + len(next(iter(self.start.values()))[0])
            layers = {n for n, m in self.network.named_modules() if isinstance(m, BaseTunerLayer)}
            values |= {"r": rank, "lora_alpha": rank, "target_modules": layers | {*self.start}}
        return {k: sorted(v) if isinstance(v, set) else v for k, v in values.items()}

    def save_for_peft(
        self, folder: Path, values: Mapping[str, Tensor] | None = None, within: str = ""
    ) -> None:
        """Write the files that `PeftModel.from_pretrained` opens; `values` as for `state_dict`.

        Of one network of several, whose names begin with `within`, these are left out.
        """
        adapters = self.state_dict(values)
        own = {k.removeprefix(within): v for k, v in adapters.items() if k.startswith(within)}
        state = {f"base_model.model.{key}": tensor for key, tensor in own.items()}
        save_file(state, folder / "adapter_model.safetensors", {"format": "pt"})
        (folder / "adapter_config.json").write_text(json.dumps(self.metadata(), indent=2))


@torch.no_grad()
def _merged_weight(layer: Any, weight: Tensor) -> Tensor:
    """The weight of a layer plus what its adapters add, computed in float32."""
    merged = weight.float()
    for adapter in layer.active_adapters:
        merged = merged + layer.get_delta_weight(adapter)
    return merged.to(weight.dtype)


def _materialise(network: nn.Module) -> None:
    """Put adapters of a network on `meta` on the CPU: their initial values do not come from it."""
    for module in network.modules():
        for name, parameter in [*module.named_parameters(recurse=False)]:
            if parameter.requires_grad and parameter.is_meta:
                setattr(module, name, nn.Parameter(torch.zeros_like(parameter, device="cpu")))


def merge_adapters(network: Any) -> None:
    """Merge adapters into the weights, in place; disabled adapters are dropped.

    The network then saves as one without adapters, and can't be trained any more.
    """
    for name, layer in [*network.named_modules()]:
        if isinstance(layer, BaseTunerLayer):
            if not layer.disable_adapters:
                layer.merge()
            network.set_submodule(name, layer.get_base_layer())
    # where this flag is set, save_pretrained writes the adapters alone
    network._hf_peft_config_loaded = False


def with_adapters(network: nn.Module, folder: str | Path) -> Any:
    """A network with the adapters of a folder of PEFT's merged in; ModelError if they don't fit."""
    try:
        return PeftModel.from_pretrained(network, str(folder)).merge_and_unload()
    except (ValueError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"the adapters in {folder} do not fit the model: {reason}") from error


EXPERTS = {"gate", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"}
"""Layers of experts. transformers stacks those of a block into parameters, which PEFT would adapt
where it is given one of these names.
"""

READ_PAST = {"out_proj", "dt_proj"}
"""Layers of a Mamba block, whose code and kernels read their weights and call no module."""


UNLIKE = ("Router", "Grouped")
"""Parts of class names in transformers of linear layers that give more than a product (Phi-3.5-MoE,
Llama 4), or one of each group (DeepSeek-V4).
"""


def _without_special(network: nn.Module) -> list[str]:
    """Names of the linear layers that can be adapted, where some can't; none where all can.

    Those are experts', two of a Mamba block, those that share their weights, as Zamba's, and those
    that are `UNLIKE` others.
    """
    modules = [*network.modules()]
    left_out: set[str] = set()
    if any("gate_up_proj" in module._parameters for module in modules):
        left_out |= EXPERTS
    if any({"conv1d", "out_proj"} <= module._modules.keys() for module in modules):
        left_out |= READ_PAST
    head = getattr(network, "get_output_embeddings", lambda: None)()
    linear = [
        (name.rpartition(".")[2], module)
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    ]
    owners = Counter(id(module.weight) for _, module in linear)
    left_out |= {
        name
        for name, module in linear
        if owners[id(module.weight)] > 1 or any(part in type(module).__name__ for part in UNLIKE)
    }
    names = {name for name, _ in linear} - left_out
    return sorted(filter(str.isidentifier, names)) if left_out else []  # not `0` of a sequence


def _require_own_weights(network: nn.Module) -> None:
    """No adapted module may share its weight with another: merged, its adapter changes both."""
    for name, layer in network.named_modules():
        if isinstance(layer, BaseTunerLayer) and not hasattr(layer.get_base_layer(), "weight"):
            raise ModelError(
                f"model.lora_targets: {name} stacks the weights of its experts, which are not"
                " adapted; model.lora_targets=all-linear adapts all other matrices"
            )
    if shared := shared_adapter(network):
        raise ModelError(f"model.lora_targets: {shared_weight(*shared)}")


def _require_targets(network: nn.Module, targets: Sequence[str]) -> None:
    """Every target must match a module, as its name or the end of it.

    PEFT requires one match among all targets: a misspelt one would silently stay untrained.
    """
    named = dict(network.named_modules())
    for target in targets:
        if not any(is_target(name, [target]) for name in named):
            matrices = [name for name, m in named.items() if isinstance(m, nn.Linear | Conv1D)]
            frequent = [name for name, _ in Counter(map(ending, matrices)).most_common(8)]
            raise ModelError(
                f"model.lora_targets={[*targets]}: no module of {type(network).__name__} is named"
                f" {target}; among those that are: {', '.join(frequent)}"
            )


def initial_values(
    init: Init, a: Tensor, b: Tensor, seed: int, index: int
) -> tuple[Tensor, Tensor]:
    """Initial A `[r, in, ...]` and B `[out, r, ...]` of layer `index`, with B A = 0.

    Distributed as PEFT's initialisations of these names; PEFT draws from the global generator,
    these draws are keyed by seed and layer.
    """
    rank, width = a.shape[0], a[0].numel()
    match init:
        case "gaussian":
            return _normal(seed, index, rank, width).view_as(a) / rank, torch.zeros_like(b)
        case "kaiming":
            uniform = rng.uniform(seed, "lora", [], [index], [rank, width])[0]
            return (2 * uniform - 1).view_as(a) / width**0.5, torch.zeros_like(b)
        case "orthogonal":
            return _orthogonal(a, b, seed, index)


def _orthogonal(a: Tensor, b: Tensor, seed: int, index: int) -> tuple[Tensor, Tensor]:
    """Both are non-zero, yet B A = 0: A's columns and B's rows span orthogonal subspaces of R^r."""
    rank, width, out = a.shape[0], a[0].numel(), b.shape[0]
    normals = _normal(seed, index, rank + width + out, rank)
    basis, _ = torch.linalg.qr(normals[:rank])
    for_a, for_b = normals[rank : rank + width], normals[rank + width :]
    initial_a = (for_a[:, : rank // 2] @ basis[0::2]).T / 10
    initial_b = for_b[:, : rank // 2] @ basis[1::2] / 10
    return initial_a.reshape(a.shape), initial_b.reshape(b.shape)


def _normal(seed: int, index: int, *shape: int) -> Tensor:
    return rng.normal(seed, "lora", [], [index], shape)[0]
