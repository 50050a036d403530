from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from rlfactory.model.weight_sets import EMA, OLD, POLICY, REFERENCE, WeightSets

X = torch.tensor([[1.0, -2.0, 0.5]])


class Adapted(nn.Module):
    """A frozen layer with a small trainable one beside it, which can be switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(3, 2).requires_grad_(False)
        self.adapter = nn.Linear(3, 2)
        self.on = True

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x)
        return out + self.adapter(x) if self.on else out

    @contextmanager
    def off(self) -> Iterator[None]:
        self.on = False
        try:
            yield
        finally:
            self.on = True


@pytest.fixture(params=["lora", "full", "lora offloaded", "full offloaded"])
def made(request: pytest.FixtureRequest) -> tuple[nn.Module, WeightSets]:
    torch.manual_seed(0)
    offload = "offloaded" in request.param
    if "lora" in request.param:
        module = Adapted()
        parameters = dict(module.adapter.named_parameters())
        return module, WeightSets(parameters, module.off, offload=offload)
    full = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return full, WeightSets(dict(full.named_parameters()), offload=offload)


def copies(weights: WeightSets) -> list[Tensor]:
    return [p.detach().clone() for p in weights.parameters.values()]


def move(weights: WeightSets, by: float = 0.5) -> None:
    for parameter in weights.parameters.values():
        parameter.data += by


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", [REFERENCE, OLD, EMA])
def test_a_set_keeps_what_the_network_was_and_gives_the_policy_back(
    made: tuple[nn.Module, WeightSets], name: str
) -> None:
    module, weights = made
    if name != REFERENCE or not isinstance(module, Adapted):
        weights.add(name)
        before = module(X)
    else:
        before = module.base(X)
    move(weights)
    policy, now = copies(weights), module(X)
    with weights(name):
        torch.testing.assert_close(module(X), before, rtol=0, atol=0)
    assert same(copies(weights), policy)
    assert torch.equal(module(X), now)


@pytest.mark.parametrize("name", [REFERENCE, OLD])
def test_an_exception_gives_the_policy_back_too(
    made: tuple[nn.Module, WeightSets], name: str
) -> None:
    module, weights = made
    weights.add(name)
    move(weights)
    policy, now = copies(weights), module(X)
    with pytest.raises(RuntimeError, match="inside"), weights(name):
        raise RuntimeError("inside")
    assert same(copies(weights), policy)
    assert torch.equal(module(X), now)


def test_the_policy_is_what_is_there(made: tuple[nn.Module, WeightSets]) -> None:
    _, weights = made
    policy = copies(weights)
    weights.add(POLICY)
    with weights(POLICY):
        assert same(copies(weights), policy)
    assert {key.split("/")[0] for key in weights.state_dict()} == {POLICY}


def test_different_sets_nest(made: tuple[nn.Module, WeightSets]) -> None:
    module, weights = made
    weights.add(OLD)
    first = module(X)
    move(weights)
    weights.add(EMA)
    second = module(X)
    move(weights)
    with weights(OLD):
        with weights(EMA):
            assert torch.equal(module(X), second)
        assert torch.equal(module(X), first)
    with weights(EMA):
        assert torch.equal(module(X), second)


def test_the_gradient_is_right_with_a_swap_between_forward_and_backward(
    made: tuple[nn.Module, WeightSets],
) -> None:
    module, weights = made
    weights.add(OLD)
    move(weights)
    parameters = list(weights.parameters.values())
    expected = torch.autograd.grad((module(X) ** 2).sum(), parameters)
    loss = (module(X) ** 2).sum()
    with torch.no_grad(), weights(OLD):
        module(X)
    loss.backward()
    assert same([p.grad for p in parameters if p.grad is not None], list(expected))


def test_an_optimiser_goes_on_with_the_policy_after_a_swap(
    made: tuple[nn.Module, WeightSets],
) -> None:
    module, weights = made
    weights.add(OLD)
    kept = copies(weights)
    optimizer = torch.optim.AdamW(list(weights.parameters.values()), lr=0.1)
    for _ in range(3):
        with torch.no_grad(), weights(OLD):
            module(X)
        (module(X) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not same(copies(weights), kept)
    with weights(OLD):
        assert same(copies(weights), kept)


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize(("decay", "expected"), [(0.0, 5.0), (0.9, 1.4), (1.0, 1.0)])
def test_update_is_a_moving_average(decay: float, expected: float, offload: bool) -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    weights = WeightSets({"p": parameter}, offload=offload)
    weights.add(EMA)
    parameter.data = torch.tensor([5.0])
    place, kept = parameter.data_ptr(), weights.state_dict()[f"{EMA}/p"].data_ptr()
    weights.update(EMA, decay)
    assert parameter.item() == 5
    assert parameter.data_ptr() == place, "the policy stays where it is"
    assert weights.state_dict()[f"{EMA}/p"].data_ptr() == kept, "and so does the set"
    with weights(EMA):
        assert parameter.item() == pytest.approx(expected)


@pytest.mark.parametrize("offload", [False, True])
def test_only_an_offloaded_set_is_copied_into_the_network(offload: bool) -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    weights = WeightSets({"p": parameter}, offload=offload)
    weights.add(EMA)
    place = parameter.data_ptr()
    with weights(EMA):
        assert (parameter.data_ptr() == place) is offload
    assert parameter.data_ptr() == place


def test_an_offloaded_set_leaves_the_device() -> None:
    parameter = nn.Parameter(torch.zeros(1, device="meta"))
    stays, leaves = (WeightSets({"p": parameter}, offload=offload) for offload in (False, True))
    stays.add(EMA)
    assert stays.state_dict()[f"{EMA}/p"].device.type == "meta"
    with pytest.raises(NotImplementedError, match="copy out of meta"):
        leaves.add(EMA)


def test_sets_of_adapters_are_not_offloaded() -> None:
    module = Adapted().to("meta")
    weights = WeightSets(dict(module.adapter.named_parameters()), module.off, offload=True)
    weights.add(OLD)
    assert all(tensor.device.type == "meta" for tensor in weights.state_dict().values())


def test_an_offloaded_set_is_copied_one_way_only() -> None:
    """To the device for its use; on the CPU it stays the tensor that it was."""
    parameter = nn.Parameter(torch.tensor([1.0]))
    weights = WeightSets({"p": parameter}, offload=True)
    for name, value in ((OLD, 2.0), (EMA, 3.0)):
        weights.add(name)
        weights._sets[name][0].fill_(value)
    before = {name: weights._sets[name][0].data_ptr() for name in (OLD, EMA)}
    with weights(OLD):
        assert parameter.item() == 2
        with weights(EMA):
            assert parameter.item() == 3
        assert parameter.item() == 2
    assert parameter.item() == 1
    assert before == {name: weights._sets[name][0].data_ptr() for name in (OLD, EMA)}
    assert [weights._sets[name][0].item() for name in (OLD, EMA)] == [2, 3]


def test_a_set_is_added_once(made: tuple[nn.Module, WeightSets]) -> None:
    _, weights = made
    weights.add(OLD)
    first = copies(weights)
    move(weights)
    weights.add(OLD)
    with weights(OLD):
        assert same(copies(weights), first)


def test_the_reference_costs_nothing_where_adapters_can_be_off() -> None:
    module = Adapted()
    weights = WeightSets(dict(module.adapter.named_parameters()), module.off)
    weights.add(REFERENCE)
    assert not any(key.startswith(REFERENCE) for key in weights.state_dict())


def test_a_state_dict_restores_every_set(made: tuple[nn.Module, WeightSets]) -> None:
    _, weights = made
    weights.add(OLD)
    move(weights)
    weights.add(EMA)
    move(weights)
    saved = {key: tensor.clone() for key, tensor in weights.state_dict().items()}
    assert len(saved) == 3 * len(weights.parameters)
    move(weights)
    weights.update(OLD, 0.3)
    weights.update(EMA, 0.3)
    weights.load_state_dict(saved)
    assert all(torch.equal(t, saved[k]) for k, t in weights.state_dict().items())
    with weights(EMA):
        assert same(copies(weights), [saved[f"{EMA}/{k}"] for k in weights.parameters])


def test_a_state_dict_brings_the_sets_that_a_fresh_one_has_not(
    made: tuple[nn.Module, WeightSets],
) -> None:
    module, weights = made
    weights.add(EMA)
    move(weights)
    saved = {key: tensor.clone() for key, tensor in weights.state_dict().items()}
    fresh = WeightSets(weights.parameters)
    move(weights)
    fresh.load_state_dict(saved)
    assert all(torch.equal(t, saved[k]) for k, t in fresh.state_dict().items())
    del module


def test_an_unknown_set_is_an_error(made: tuple[nn.Module, WeightSets]) -> None:
    with pytest.raises(KeyError), made[1]("nonesuch"):
        pass


class RecordingSharding:
    """A division that remembers what it was asked to put together, in this order."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def local(self, part: Tensor) -> Tensor:
        return part

    def dtensor(self, name: str, part: Tensor) -> Any:
        def full_tensor() -> Tensor:
            self.values.append(float(part))
            return part

        return SimpleNamespace(full_tensor=full_tensor)


def test_processes_hand_over_the_same_set_at_the_same_time() -> None:
    asked = []
    for order in ([OLD, EMA], [EMA, OLD]):
        parameter = nn.Parameter(torch.tensor(1.0))
        weights, division = WeightSets({"w": parameter}), RecordingSharding()
        for name in order:
            weights.add(name)
        parameter.data += 1.0
        weights.update(EMA, decay=0.5)
        weights.sharding = cast("Any", division)
        weights.full_state_dict()
        asked.append(division.values)
    assert asked == [[1.5, 1.0, 2.0]] * 2


def test_adapters_that_a_run_starts_from_are_its_reference_also_after_loading() -> None:
    parameter, switched = nn.Parameter(torch.tensor([2.0])), list[str]()

    @contextmanager
    def off() -> Iterator[None]:
        switched.append("off")
        yield

    weights = WeightSets({"a": parameter}, off)
    with weights("reference"):
        pass
    assert switched == ["off"]
    assert "reference/a" not in weights.state_dict()
    weights.refer_to_policy()
    parameter.data.fill_(5.0)
    with weights("reference"):
        assert parameter.item() == 2.0
    assert (switched, parameter.item()) == (["off"], 5.0)
    again = WeightSets({"a": nn.Parameter(torch.zeros(1))}, off)
    again.add("reference")  # as a run does whose checkpoint is then loaded
    again.load_state_dict(weights.state_dict())
    with again("reference"):
        assert again.parameters["a"].item() == 2.0
    assert "policy" not in again._sets


def test_a_copy_that_is_the_reference_follows_the_start_and_none_is_made() -> None:
    parameter = nn.Parameter(torch.tensor([2.0]))
    weights = WeightSets({"a": parameter})
    weights.refer_to_policy()
    assert "reference" not in weights
    weights.add("reference")
    parameter.data.fill_(5.0)
    weights.refer_to_policy()
    with weights("reference"):
        assert parameter.item() == 5.0
