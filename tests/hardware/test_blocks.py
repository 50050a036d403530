"""Which modules are blocks, and the order in which they add gradients."""

import torch
from torch import Tensor, nn

from rlfactory.hardware.blocks import add_by_blocks, blocks


class Block(nn.Module):
    def __init__(self, first: float, second: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.first, self.second = first, second

    def forward(self, x: Tensor, *, time: Tensor) -> Tensor:
        return self.weight * (x + self.first * time + self.second * time)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Parameter(torch.ones(()))
        self.layers = nn.ModuleList([Block(2.0**-24, 2.0**-24), Block(1.0, 0.0)])
        self.inner = nn.Sequential(nn.ModuleList([nn.Identity(), nn.Linear(1, 1)]))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.layers:
            x = block(x, time=self.time)
        return x


def test_blocks_are_members_of_the_outermost_lists() -> None:
    network = Network()
    assert blocks(network) == [*network.layers, network.inner[0][1]]


def test_a_block_adds_the_gradients_of_what_it_is_given_first() -> None:
    """2^-24 is lost if it is added to 1; twice of it is not."""
    found = []
    for by_blocks in (False, True):
        network = Network()
        if by_blocks:
            add_by_blocks(network)
        network(torch.zeros(())).backward()
        assert network.time.grad is not None
        found.append(float(network.time.grad) - 1)
    assert found == [0.0, 2.0**-23]


def test_without_gradients_nothing_is_added() -> None:
    network = Network()
    add_by_blocks(network)
    with torch.no_grad():
        assert network(torch.zeros(())).grad_fn is None
