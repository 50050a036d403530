"""The sum of gradients has the same bits however micro-batches are divided among ranks."""

import threading
from typing import Any

import pytest
import torch
from stand_ins import Threaded
from torch import Tensor, nn

from rlfactory.hardware.gradient_tree import GradientTree, add_by_block

LEAVES = 13


def gradients_of(leaf: int) -> list[Tensor | None]:
    """Of three parameters, one of which no micro-batch trains, and one only those of odd number."""
    generator = torch.Generator().manual_seed(leaf)
    scale = 10.0 ** (leaf % 7 - 3)  # so that the order shows in the bits
    first = torch.randn(4, 3, generator=generator) * scale
    return [first, torch.randn(5, generator=generator) if leaf % 2 else None, None]


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(*shape)) for shape in ((4, 3), (5,), (2,))]


class Strict(Threaded):
    """Refuses what gloo does: tensors of several types."""

    def all_gather(self, values: Tensor) -> Tensor:
        parts = self._all(values)
        assert len({part.dtype for part in parts}) == 1
        return torch.cat(parts)


def summed(leaves: int, ranks: int) -> list[list[Tensor | None]]:
    """What each rank has, of leaves in blocks as `Hardware.own_passes` gives them."""
    found: list[Any] = [None] * ranks
    table, barrier = [None] * ranks, threading.Barrier(ranks, timeout=60)

    def work(rank: int) -> None:
        hardware = Strict(rank, ranks, table, barrier)
        hardware.tile = 1
        own, trained = hardware.own_passes(range(leaves)), parameters()
        tree = GradientTree(trained, own.start)
        for leaf in own:
            for parameter, gradient in zip(trained, gradients_of(leaf), strict=True):
                parameter.grad = None if gradient is None else gradient.clone()
            tree.take(counts=True)
        for parameter in trained:
            parameter.grad = torch.ones_like(parameter)
        tree.take(counts=False)
        tree.finish(hardware)
        found[rank] = [parameter.grad for parameter in trained]

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("leaves", range(1, LEAVES + 1))
def test_ranks_add_in_one_order(leaves: int) -> None:
    ((first, second, third),) = summed(leaves, 1)
    assert third is None
    for ranks in (2, 3, 4):
        for own in summed(leaves, ranks):
            assert own[0] is not None
            assert torch.equal(own[0], first)
            assert (own[1] is None) == (second is None) == (leaves < 2)
            assert second is None or torch.equal(own[1], second)
            assert own[2] is None


def test_it_is_the_sum() -> None:
    ((first, _, _),) = summed(LEAVES, 1)
    each = [gradients_of(leaf)[0] for leaf in range(LEAVES)]
    exact = torch.stack([gradient.double() for gradient in each if gradient is not None]).sum(0)
    assert torch.allclose(first.double(), exact, rtol=1e-5)


def test_another_order_has_other_bits() -> None:
    """Otherwise the first test would show nothing."""
    ((first, _, _),) = summed(LEAVES, 1)
    running = torch.zeros(4, 3)
    for leaf in range(LEAVES):
        running += gradients_of(leaf)[0]
    assert not torch.equal(running, first)


class Blocks(nn.Module):
    """Two blocks that read one input several times each, as those of a diffusion transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(3, 3)
        self.blocks = nn.ModuleList([Twice(), Twice()])

    def forward(self, x: Tensor) -> Tensor:
        read = self.shared(x)
        for block in self.blocks:
            x = block(x, read=read)
        return x


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x: Tensor, read: Tensor) -> Tensor:
        first, second = self.layers
        out: Tensor = first(read) * x + second(read).sin()
        return out


def test_a_gradient_is_added_over_a_block_before_others() -> None:
    torch.manual_seed(0)
    network = Blocks()
    add_by_block(network)
    sums, total = list[Tensor](), list[Tensor]()

    def watch(_: nn.Module, __: Any, kwargs: dict[str, Tensor]) -> None:
        kwargs["read"].register_hook(sums.append)

    def watch_all(_: nn.Module, __: Any, output: Tensor) -> None:
        output.register_hook(total.append)

    network.shared.register_forward_hook(watch_all)
    for block in network.blocks:  # after the hook of `add_by_block`: what the block itself reads
        block.register_forward_pre_hook(watch, with_kwargs=True)
    network(torch.randn(4, 3)).sum().backward()
    assert torch.equal(total[0], sums[0] + sums[1])
    assert all(bool(each.any()) for each in sums)
