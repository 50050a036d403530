"""The sum of an update's gradients, added in an order that only the micro-batches' numbers give.

A sum of floats depends on its order. Here micro-batch k is leaf k of a binary tree, whose nodes are
added as soon as both children are there; so a process that has a block of the leaves adds the same
pairs as one that has all, and what is left over is added by all ranks alike. Within a micro-batch
the gradient of what several blocks read is added up as FSDP2 does it (`add_by_block`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from rlfactory.hardware.base import Hardware

Sums = list[Tensor | None]
"""The sum of some leaves' gradients, by parameter; None where it has none."""


def blocks(network: nn.Module) -> list[nn.Module]:
    """The modules that FSDP gathers one at a time: members of a network's outermost ModuleLists."""
    found = list[nn.Module]()
    for child in network.children():
        if isinstance(child, nn.ModuleList):
            found += [block for block in child if any(True for _ in block.parameters())]
        else:
            found += blocks(child)
    return found


def add_by_block(network: nn.Module) -> None:
    """Let each block's inputs go through a node of the graph, as FSDP2 does: the gradient of one
    is then added up over what the block does with it first, and over the blocks after that.
    """
    for module in (*blocks(network), network):
        module.register_forward_pre_hook(_through_nodes, with_kwargs=True)


def _through_nodes(_: nn.Module, args: Any, kwargs: Any) -> Any:
    def through(x: Tensor) -> Tensor:
        return x.view_as(x) if x.requires_grad else x

    return pytree.tree_map_only(Tensor, through, (args, kwargs))


@contextmanager
def added_by_number(
    hardware: Hardware, parameters: Sequence[nn.Parameter], first: int
) -> Iterator[Callable[[bool], None]]:
    """Yields a function to call after each backward pass of an update, with whether it counts;
    after the block each of `parameters` has the sum over all ranks. Without a tile nothing is done.
    """
    if hardware.tile is None:
        yield lambda counts: None
        return
    with hardware.whole_gradients(parameters) as whole:
        tree = GradientTree(whole, first)
        yield tree.take
        tree.finish(hardware)


class GradientTree:
    """Takes the gradient of one micro-batch after another away from the parameters.

    At most log2 n + 1 gradients of n micro-batches are kept at a time.

    Args:
        parameters: all that is trained.
        first: the number of the first micro-batch of this rank, whose others follow it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], first: int) -> None:
        self._parameters, self._next = parameters, first
        self._nodes: list[tuple[int, int, Sums]] = []  # level, number within it, sum

    def take(self, counts: bool) -> None:
        """Take the gradient of the next micro-batch; it is dropped unless it `counts`."""
        gradients = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        if counts:
            self._add(0, self._next, gradients)
            self._next += 1

    def finish(self, hardware: Hardware) -> None:
        """Give each parameter the sum over the micro-batches of all ranks; a collective of all."""
        if hardware.world_size > 1:
            self._gather(hardware)
        total: Sums = [None] * len(self._parameters)
        for _, _, sums in reversed(self._nodes):
            total = _added(sums, total)
        for parameter, gradient in zip(self._parameters, total, strict=True):
            parameter.grad = gradient

    def _add(self, level: int, number: int, sums: Sums) -> None:
        """Add a node, which follows all others; a left sibling is merged with it."""
        while self._nodes and number % 2 and self._nodes[-1][:2] == (level, number - 1):
            sums = _added(self._nodes.pop()[2], sums)
            level, number = level + 1, number // 2
        self._nodes.append((level, number, sums))

    def _gather(self, hardware: Hardware) -> None:
        """Exchange the nodes that have no sibling here, and merge those of all ranks."""
        own, count = self._nodes, len(self._parameters)
        # of a rank without nodes too, the types are those of the others
        flags = [[s is not None for s in sums] for _, _, sums in own]
        has = torch.tensor(flags, dtype=torch.bool).view(-1, count)
        places = torch.tensor([place[:2] for place in own], dtype=torch.int64).view(-1, 2)
        places, has = hardware.all_gather(places), hardware.all_gather(has)
        columns: list[Sums] = []
        for column, parameter in enumerate(self._parameters):
            if not has[:, column].any():
                columns.append([None] * len(places))
                continue
            found = [sums[column] for _, _, sums in own]
            rows = [torch.zeros_like(parameter) if s is None else s for s in found]
            sent = torch.stack(rows) if rows else parameter.new_empty(0, *parameter.shape)
            received = hardware.all_gather(sent.detach()).unbind(0)
            kept = zip(received, has[:, column].tolist(), strict=True)
            columns.append([row if is_there else None for row, is_there in kept])
        self._nodes = []
        for (level, number), *sums in zip(places.tolist(), *columns, strict=True):
            self._add(level, number, sums)


def _added(left: Sums, right: Sums) -> Sums:
    """The sums of two nodes, in place of the left one."""
    return [
        b if a is None else a if b is None else a.add_(b) for a, b in zip(left, right, strict=True)
    ]
