"""A divided network in one process, which has all of it; several are tried in tests/dist."""

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlfactory.hardware import fsdp
from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.distributed import Distributed
from rlfactory.hardware.fsdp import blocks
from rlfactory.model.weight_sets import POLICY, REFERENCE, WeightSets


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Tanh()])
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        scale: Any = self.scale
        return x * scale


X = torch.linspace(-1, 1, 6).view(2, 3)


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> Iterator[Distributed]:
    monkeypatch.delenv("RANK", raising=False)
    yield Distributed(device="cpu", strategy="fsdp2")
    dist.destroy_process_group()


def model_of(seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = Net()
    return SimpleNamespace(network=network, weights=WeightSets(dict(network.named_parameters())))


@pytest.fixture
def divided(hardware: Distributed) -> Any:
    model = model_of()
    hardware.prepare(model)
    return model


def test_a_group_of_some_ranks_waits_no_longer_than_all_do(
    hardware: Distributed, monkeypatch: pytest.MonkeyPatch
) -> None:
    group: Any = dist.new_group()
    mesh = SimpleNamespace(get_all_groups=lambda: [group])
    monkeypatch.setattr(fsdp, "init_device_mesh", lambda *_, **__: mesh)
    fsdp.FSDPParameters(timeout=timedelta(seconds=7))._mesh("cpu")
    assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=7)


def test_blocks_are_the_members_of_the_outermost_lists() -> None:
    network = nn.Sequential(Net(), nn.ModuleList([Net()]))
    assert blocks(network) == [*network[0].blocks[:2], network[1][0]]


def test_a_step_is_that_of_a_whole_network(hardware: Distributed, divided: Any) -> None:
    whole = model_of()
    norms = []
    for model, engine in ((divided, hardware), (whole, Distributed(device="cpu"))):
        parameters = list(model.weights.parameters.values())
        optimizer = torch.optim.AdamW(parameters, lr=0.1)
        for _ in range(3):
            for rows in X.split(1):
                engine.backward(model.network(rows).square().sum())
            norms.append(engine.step(optimizer, parameters, 1.0))
    assert norms[:3] == pytest.approx(norms[3:], rel=1e-5)
    ours, theirs = divided.weights.full_state_dict(), whole.weights.full_state_dict()
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        torch.testing.assert_close(ours[key], value)


def test_an_error_of_the_optimizer_is_not_taken_for_a_lost_process(
    hardware: Distributed, divided: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = list(divided.weights.parameters.values())
    optimizer = torch.optim.AdamW(parameters)

    def fail() -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(optimizer, "step", fail)
    hardware.backward(divided.network(X).square().sum())
    with pytest.raises(RuntimeError, match="^CUDA out of memory$") as found:
        hardware.step(optimizer, parameters, 1.0)
    assert not isinstance(found.value, HardwareError)


def test_weight_sets_are_exchanged_and_seen(divided: Any) -> None:
    weights = divided.weights
    weights.add(REFERENCE)
    with torch.no_grad():
        before = divided.network(X).clone()
        for parameter in weights.parameters.values():
            parameter.mul_(0.5)
        weights.sharding.values_changed()
        after = divided.network(X).clone()
        assert not torch.allclose(before, after)
        with weights(REFERENCE):
            torch.testing.assert_close(divided.network(X), before)
        with weights(POLICY):
            torch.testing.assert_close(divided.network(X), after)
            with weights(REFERENCE):
                torch.testing.assert_close(divided.network(X), before)
            torch.testing.assert_close(divided.network(X), after)
        torch.testing.assert_close(divided.network(X), after)


def test_a_pass_by_other_weights_before_the_backward_changes_no_gradient(divided: Any) -> None:
    weights = divided.weights
    weights.add(REFERENCE)

    def gradient(compares: bool) -> Tensor:
        for parameter in divided.network.parameters():
            parameter.grad = None
        out = divided.network(X).square().sum()
        if compares:
            with torch.no_grad(), weights(REFERENCE):
                divided.network(X)
        out.backward()
        found: Tensor = divided.network.first.weight.grad.full_tensor()
        return found

    with torch.no_grad():
        for parameter in weights.parameters.values():
            parameter.mul_(0.5)
    torch.testing.assert_close(gradient(True), gradient(False))


def test_what_was_saved_whole_is_loaded(divided: Any) -> None:
    weights = divided.weights
    weights.add(REFERENCE)
    other = model_of(seed=1)
    other.weights.add(REFERENCE)
    weights.load_full_state_dict(other.weights.full_state_dict())
    torch.testing.assert_close(weights.full_state_dict(), other.weights.full_state_dict())
