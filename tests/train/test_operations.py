"""What modules make of rows is recorded until the first step, and compared whatever the batches."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from rlfactory.train.operations import VARIABLE, first_difference, record_operations

ROWS = torch.linspace(-1, 1, 12).view(6, 2)


class Block(nn.Module):
    """A sum over neighbours in a batch, if it is bad: a row then depends on the others."""

    def __init__(self, is_bad: bool) -> None:
        super().__init__()
        self.inner, self.is_bad = nn.Tanh(), is_bad

    def forward(self, x: Tensor, *, shift: Tensor) -> Tensor:
        found: Tensor = self.inner(x) + shift
        return found + 1e-3 * len(x) if self.is_bad else found


class Network(nn.Module):
    def __init__(self, is_bad: bool) -> None:
        super().__init__()
        self.first, self.second = Block(False), Block(is_bad)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        shift = torch.tensor([0.5, 0.25])  # no row, but of all rows
        found: Tensor = self.second(self.first(x, shift=shift), shift=shift) * self.scale
        return found


def recorded(
    place: Path, batches: Sequence[Tensor], patch: pytest.MonkeyPatch, *, is_bad: bool
) -> Path:
    place.mkdir()
    patch.setenv(VARIABLE, str(place))
    network = Network(is_bad)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    record_operations(SimpleNamespace(network=network), optimizer, 0)
    for batch in batches:
        network(batch).sum().backward()
    assert not [*place.iterdir()]
    optimizer.step()
    network(ROWS)  # with other weights: not recorded
    assert not network.first.inner._forward_hooks
    return place


@pytest.mark.parametrize("is_bad", [False, True])
def test_the_first_module_that_differs_is_named(
    is_bad: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = {"one": [ROWS], "other": [ROWS[4:], ROWS[:1], ROWS[1:4]]}
    places = [
        recorded(tmp_path / name, each, monkeypatch, is_bad=is_bad)
        for name, each in batches.items()
    ]
    assert first_difference(*places) == ("second (Block)" if is_bad else None)


def test_nothing_is_recorded_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    network = Network(is_bad=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    record_operations(SimpleNamespace(network=network), optimizer, 0)
    assert not network.first._forward_hooks
