"""One process by itself, in a group of its own; several are tried in tests/dist."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn

from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.distributed import Distributed
from rlfactory.hardware.gradients import buckets, sum_gradients


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> Iterator[Distributed]:
    monkeypatch.delenv("RANK", raising=False)
    yield Distributed(device="cpu")
    dist.destroy_process_group()


def test_alone_it_asks_itself(hardware: Distributed) -> None:
    assert (hardware.rank, hardware.world_size) == (0, 1)
    for values in (torch.arange(3), torch.tensor([True, False]), torch.rand(2, 3), torch.ones(0)):
        assert torch.equal(hardware.gather(values), values)
    texts = ["a", "", "grüße", "\ud800"]
    assert hardware.gather_texts(texts) == texts
    assert hardware.gather_texts([]) == []
    assert hardware.total(2.5) == hardware.largest(2.5) == 2.5
    assert [hardware.any(flag) for flag in (True, False)] == [True, False]
    assert [hardware.first(flag) for flag in (True, False)] == [0, None]
    assert hardware.tell({"a": [1, None]}) == {"a": [1, None]}
    assert list(hardware.evened(iter("ab"), lambda: None)) == [("a", True), ("b", True)]


def test_a_step_is_that_of_one_process(hardware: Distributed) -> None:
    parameter, idle = nn.Parameter(torch.tensor([3.0, 4.0])), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([parameter, idle], lr=0.1, weight_decay=1.0)
    hardware.backward((parameter**2).sum() / 2)
    assert hardware.step(optimizer, [parameter, idle], 1.0) == pytest.approx(5.0)
    assert idle.tolist() == [1.0], "what has no gradient anywhere is left alone"
    assert parameter.grad is None


def test_gradients_travel_together_by_kind_and_size(hardware: Distributed) -> None:
    tensors = [torch.ones(n) for n in (2, 3, 9, 1)] + [torch.ones(1, dtype=torch.float64)]
    found = [[len(t) for t in group] for group in buckets(tensors, 20)]
    assert found == [[2, 3], [9], [1], [1]]
    parameters = [nn.Parameter(tensor) for tensor in tensors]
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, float(number))
    sum_gradients(parameters, bucket=20)
    assert [p.grad.unique().tolist() for p in parameters] == [[0], [1], [2], [3], [4]]  # type: ignore[union-attr]


def test_a_launcher_that_started_another_number_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(HardwareError, match=r"hardware\.processes=2, but .* has started 1"):
        Distributed(device="cpu", processes=2)
