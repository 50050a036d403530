"""A network that one rank has read, on its way to being sharded over all, a module at a time."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class LoadedNetwork:
    """Moves a network's tensors to the device; those on `meta` get the values of rank 0.

    So that only rank 0 reads the network, into main memory, and no device holds more of it in full
    than one module. A collective: all ranks make the same calls.

    Args:
        network: has its values in rank 0; in other ranks they may be on `meta`.
        device: where it will compute.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self._device = device
        tensors = dict(_named_tensors(network))
        is_missing = torch.tensor(float(any(tensor.is_meta for tensor in tensors.values())))
        dist.all_reduce(is_missing, dist.ReduceOp.MAX)
        self._is_missing = bool(is_missing)
        # a network on meta was built from its configuration, which does not name all dtypes
        described = [{name: tensor.dtype for name, tensor in tensors.items()}]
        if self._is_missing:
            dist.broadcast_object_list(described)
        self._dtypes = {id(tensors[name]): dtype for name, dtype in described[0].items()}
        self._done: dict[int, tuple[Tensor, Tensor]] = {}  # by the identity of the first

    def materialise(self, module: nn.Module) -> None:
        """Move those tensors of `module` that are not there yet."""
        for part in module.modules():
            for group in (part._parameters, part._buffers, part.__dict__):
                for name, tensor in [*group.items()]:
                    if isinstance(tensor, Tensor) and not isinstance(tensor, DTensor):
                        group[name] = self._moved(tensor)  # type: ignore[assignment]

    @torch.no_grad()
    def _moved(self, tensor: Tensor) -> Tensor:
        """The tensor on the device: the same object, but for one on `meta`."""
        if id(tensor) in self._done:  # shared by two modules
            return self._done[id(tensor)][1]
        moved: Any = tensor
        if tensor.is_meta:
            moved = torch.empty_like(tensor, dtype=self._dtypes[id(tensor)], device=self._device)
            if isinstance(tensor, nn.Parameter):
                moved = nn.Parameter(moved, tensor.requires_grad)
        else:
            moved.data = tensor.data.to(self._device)
        if self._is_missing:
            dist.broadcast(moved.data, 0)
        # both are kept, so that no other tensor gets their identity
        self._done |= {id(tensor): (tensor, moved), id(moved): (moved, moved)}
        result: Tensor = moved
        return result


def _named_tensors(network: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters, buffers, and tensors in plain attributes, such as Qwen-Image's rotations."""
    plain = [
        (f"{prefix}.{name}", value)
        for prefix, module in network.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor)
    ]
    return [*network.named_parameters(), *network.named_buffers(), *plain]
