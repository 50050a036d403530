"""Collectives of torch.distributed on pretended tensors: by gloo, but recorded as NCCL."""

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from .ledger import CPU_COLLECTIVE, GPU_COLLECTIVE, LEDGER
from .rules import DeviceMismatchError
from .tensor import PretendedTensor, host_of

NAMES = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "broadcast", "gather", "scatter"),
    *("reduce", "reduce_scatter_tensor"),
)


def unwrap_collectives() -> None:
    """Have collectives take the numbers of pretended tensors, and every group use gloo."""
    for name in NAMES:
        setattr(dist, name, _unwrapped(name))
    start = dist.init_process_group

    def start_with_gloo(backend: str | None = None, *args: Any, **options: Any) -> Any:
        options.pop("device_id", None)
        return start("gloo", *args, **options)

    dist.init_process_group = start_with_gloo


def _unwrapped(name: str) -> Any:
    original = getattr(dist, name)

    def collective(*args: Any, **options: Any) -> Any:
        tensors = [x for x in tree_leaves((args, options)) if isinstance(x, Tensor)]
        LEDGER.record(_backend(name, tensors), name)
        return original(*tree_map(host_of, args), **tree_map(host_of, options))

    return collective


def _backend(name: str, tensors: Sequence[Tensor]) -> str:
    """Which backend would have carried the tensors; those of both devices can't go together."""
    ours = {isinstance(tensor, PretendedTensor) for tensor in tensors}
    if len(ours) > 1:
        raise DeviceMismatchError(f"{name} of tensors of both devices")
    return GPU_COLLECTIVE if ours == {True} else CPU_COLLECTIVE
