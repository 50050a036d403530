"""The copy of the training state that a run rolls back to."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import EMA, OLD, POLICY, REFERENCE
from rlfactory.run.checkpoint.serialization import flatten
from rlfactory.run.checkpoint.snapshot import Snapshot, snapshot_bytes


def step(model: ImageModel, optimizer: torch.optim.Optimizer) -> None:
    for i, parameter in enumerate(model.weights.parameters.values()):
        parameter.grad = parameter.detach() + i
    optimizer.step()
    model.weights.update(EMA, 0.5)
    optimizer.param_groups[0]["lr"] *= 0.9


def flat(model: ImageModel, optimizer: torch.optim.Optimizer) -> tuple[Any, dict[str, Tensor]]:
    return flatten({"w": model.weights.state_dict(), "o": optimizer.state_dict()})


def same(one: tuple[Any, dict[str, Tensor]], other: tuple[Any, dict[str, Tensor]]) -> bool:
    values = one[1].keys() == other[1].keys() and all(
        torch.equal(t, other[1][k]) for k, t in one[1].items()
    )
    return one[0] == other[0] and values


@pytest.mark.parametrize("before", [0, 1, 3])
def test_all_that_moved_is_put_back(linear: Callable[..., ImageModel], before: int) -> None:
    model = linear()
    for name in (EMA, OLD):
        model.weights.add(name)
    optimizer = torch.optim.AdamW(list(model.weights.parameters.values()), lr=0.1)
    for _ in range(before):
        step(model, optimizer)
    there, snapshot = flat(model, optimizer), Snapshot()
    snapshot.take(before, model, optimizer)
    assert snapshot.iteration == before
    step(model, optimizer)
    after = flat(model, optimizer)
    assert not same(there, after)
    snapshot.put_back(model, optimizer)
    assert same(there, flat(model, optimizer))
    step(model, optimizer)
    assert same(after, flat(model, optimizer)), "it learns on as it did"


def test_memory_is_used_again(linear: Callable[..., ImageModel]) -> None:
    model = linear()
    optimizer = torch.optim.AdamW(list(model.weights.parameters.values()), lr=0.1)
    model.weights.add(EMA)
    step(model, optimizer)
    snapshot = Snapshot()
    places = []
    for iteration in range(2):
        snapshot.take(iteration, model, optimizer)
        places.append(
            [t.data_ptr() for t in [*snapshot._weights.values(), *snapshot._moments.values()]]
        )
        step(model, optimizer)
    assert len(places[0]) > 6
    assert places[0] == places[1]


def test_half_a_copy_is_none(linear: Callable[..., ImageModel]) -> None:
    model = linear()
    optimizer = torch.optim.SGD(list(model.weights.parameters.values()), lr=0.1)
    snapshot = Snapshot()
    snapshot.take(1, model, optimizer)
    with pytest.raises(AttributeError):
        snapshot.take(2, model, None)  # type: ignore[arg-type]
    assert snapshot.iteration is None


def test_the_reference_is_not_copied(linear: Callable[..., ImageModel]) -> None:
    model = linear()
    for name in (EMA, REFERENCE):
        model.weights.add(name)
    optimizer = torch.optim.AdamW(list(model.weights.parameters.values()), lr=0.1)
    snapshot = Snapshot()
    snapshot.take(1, model, optimizer)
    assert {key.split("/")[0] for key in snapshot._weights} == {POLICY, EMA}
    there = flat(model, optimizer)
    step(model, optimizer)
    snapshot.put_back(model, optimizer)
    assert same(there, flat(model, optimizer))


def test_its_size_is_known_before_there_are_moments(linear: Callable[..., ImageModel]) -> None:
    model = linear()
    for name in (EMA, REFERENCE):
        model.weights.add(name)
    assert snapshot_bytes(model) == 4 * 2 * 4  # policy, ema, two moments: two numbers each


def test_a_rank_with_equal_weights_notes_the_iteration_only(
    linear: Callable[..., ImageModel],
) -> None:
    model = linear()
    model.weights.add(EMA)
    optimizer = torch.optim.AdamW(list(model.weights.parameters.values()), lr=0.1)
    snapshot = Snapshot(copies=False)
    snapshot.take(4, model, optimizer)
    assert snapshot.iteration == 4
    assert snapshot._weights == {}
    step(model, optimizer)
    after = flat(model, optimizer)
    snapshot.put_back(model, optimizer)
    assert same(after, flat(model, optimizer))


def test_a_gpus_copies_are_waited_for_before_they_are_read(
    linear: Callable[..., ImageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Any] = []
    stream = SimpleNamespace(synchronize=lambda: waits.append("host"))
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: stream)
    model = linear()
    monkeypatch.setattr(model, "device", SimpleNamespace(type="cuda"))
    optimizer = torch.optim.AdamW(list(model.weights.parameters.values()), lr=0.1)
    snapshot = Snapshot()
    snapshot.take(1, model, optimizer)
    assert not waits
    snapshot.put_back(model, optimizer)
    assert waits == ["host"]
