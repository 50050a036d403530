"""The blocks of a network, which FSDP gathers one at a time."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def blocks(network: nn.Module) -> list[nn.Module]:
    """The members of a network's outermost ModuleLists that have parameters."""
    found = list[nn.Module]()
    for child in network.children():
        if isinstance(child, nn.ModuleList):
            found += [block for block in child if any(True for _ in block.parameters())]
        else:
            found += blocks(child)
    return found


def add_by_blocks(network: nn.Module) -> None:
    """Let a block add the gradients of what it is given before others add theirs, as FSDP's nodes
    do: a time embedding, which all blocks read, has the same bits in its gradient then.
    """
    for module in (*blocks(network), network):
        module.register_forward_pre_hook(_with_nodes, with_kwargs=True)


def _with_nodes(_: nn.Module, args: Any, kwargs: Any) -> Any:
    return pytree.tree_map(_with_node, (args, kwargs)) if torch.is_grad_enabled() else None


def _with_node(value: Any) -> Any:
    return value.view_as(value) if isinstance(value, Tensor) and value.requires_grad else value
