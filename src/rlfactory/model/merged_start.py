"""LoRA adapters that are merged into a network before it is trained (`begin_as=merged`), and that
exported adapters hold beside those that were trained since.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import safe_open
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rlfactory.model.pipelines.adapter_files import (
    MATRIX,
    AdapterFileError,
    find_adapters,
    is_a,
    read_adapters,
)
from rlfactory.utils.errors import ModelError

Start = Mapping[str, tuple[Tensor, Tensor]]
"""A `[r, in, ...]` and B `[out, r, ...]` of each adapted module by its name, in float32 on the CPU.
What they add to a weight is B A: the scale alpha / r is multiplied into B.
"""


@torch.no_grad()
def merge_start(network: nn.Module, path: Path, pipeline: str | None = None) -> Start:
    """Add the adapters of a file, or of its folder, to the weights of a network in place; adapters
    of its own stay as they are. Sums are computed in float32, and rounded to the dtype of the
    weights.

    ModelError, by the class of its `pipeline`, where there are none, they are of other modules or
    shapes, or one is of an embedding or of a module that shares its weight.
    """
    modules: dict[str, Any] = {
        name.replace("_orig_mod.", ""): m.get_base_layer() if isinstance(m, BaseTunerLayer) else m
        for name, m in network.named_modules()
    }
    start = _read(path, modules, pipeline)
    owners = Counter(id(m._parameters.get("weight")) for m in {*modules.values()})
    for name, (a, b) in start.items():
        module = modules[name]
        if owners[id(module.weight)] > 1:
            raise ModelError(
                f"begin_from: {path} adapts {name}, which shares its weight with another module:"
                " merged into it, the adapter would change both; allowed are adapters of others"
            )
        delta = b.flatten(1) @ a.flatten(1)
        delta = delta.T if isinstance(module, Conv1D) else delta  # whose matrices are transposed
        if delta.numel() != module.weight.numel() or delta.shape[0] != module.weight.shape[0]:
            raise ModelError(
                f"begin_from: {path} adapts {name} of {[*delta.shape]}, and here it is"
                f" {[*module.weight.shape]}; choose the model that the adapters are of"
            )
        weight = module.weight.data
        added = delta.view(weight.shape).to(weight.device)
        weight.copy_((weight.float() + added).to(weight.dtype))
    return start


def _read(path: Path, modules: Mapping[str, nn.Module], pipeline: str | None) -> Start:
    file = find_adapters(path.expanduser())
    if file is None:
        raise ModelError(f"begin_from: {path} holds no LoRA adapters any more, which are merged")
    try:
        adapters = read_adapters(file, pipeline, modules)
    except AdapterFileError as error:
        raise ModelError(f"begin_from: {error}") from error
    start = {}
    with safe_open(file, "pt") as tensors:
        values = {n: tensors.get_tensor(key).float() for n, key in adapters.keys.items()}
    for name in adapters.modules:
        found = [other for other in modules if f".{other}".endswith(f".{name}")]
        if not found or isinstance(modules[min(found, key=len)], nn.Embedding):
            raise ModelError(f"begin_from: {path} adapts {name}, and here is no such layer")
        a, b = (
            next(v for n, v in values.items() if n.startswith(f"{name}.lora_") and side in n)
            for side in ("A", "B")
        )
        start[min(found, key=len)] = a, b * (adapters.alpha / adapters.rank)
    return start


def stacked(state: Mapping[str, Tensor], scale: float, start: Start) -> dict[str, Tensor]:
    """Adapters on a network into which others were merged, as adapters of the network before.

    Both, the own ones `state` by PEFT's names, are one adapter of the sum of their ranks,
    `B A = B_start A_start + scale B_own A_own` with the own alpha / rank as `scale`, and zeros
    where only one of them adapts a module; its own scale is 1.
    """
    own = {MATRIX.sub("", key): key for key in state if is_a(key)}
    ranks = [len(next(iter(start.values()))[0]), len(state[next(iter(own.values()))])]
    found: dict[str, Tensor] = {}
    for name in sorted({*own, *start}):
        key = own.get(name, f"{name}.lora_A.weight")
        pairs: list[tuple[Tensor, Tensor] | None] = [start.get(name), None]
        if name in own:
            pairs[1] = state[key].float(), scale * state[_of_b(key)].float()
        a, b = next(pair for pair in reversed(pairs) if pair is not None)
        filled = [
            (a.new_zeros(rank, *a.shape[1:]), b.new_zeros(len(b), rank, *b.shape[2:]))
            if pair is None
            # a file may have those of a linear layer as a convolution's
            else (pair[0].view(rank, *a.shape[1:]), pair[1].view(len(b), rank, *b.shape[2:]))
            for rank, pair in zip(ranks, pairs, strict=True)
        ]
        found[key] = torch.cat([pair[0] for pair in filled]).contiguous()
        found[_of_b(key)] = torch.cat([p[1] for p in filled], 1).contiguous()
    return found


def _of_b(key: str) -> str:
    """The name of B, by that of A."""
    return re.sub(r"(lora_(embedding_)?)A", r"\1B", key)
