"""One process by itself, in a group of its own; several are tried in tests/dist."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from rlfactory.hardware.base import HardwareError, PeerLostError
from rlfactory.hardware.distributed import (
    Distributed,
    _communicating,
    _device_of,
    sum_gradients,
)
from rlfactory.hardware.process_environment import ProcessInfo


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> Iterator[Distributed]:
    monkeypatch.delenv("RANK", raising=False)
    yield Distributed(device="cpu")
    dist.destroy_process_group()


def test_alone_it_asks_itself(hardware: Distributed) -> None:
    assert (hardware.rank, hardware.world_size) == (0, 1)
    for values in (torch.arange(3), torch.tensor([True, False]), torch.rand(2, 3), torch.ones(0)):
        assert torch.equal(hardware.all_gather(values), values)
    texts = ["a", "", "grüße", "\ud800"]
    assert hardware.all_gather_list(texts) == texts
    assert hardware.all_gather_list([]) == []
    assert hardware.all_reduce_sum(2.5) == hardware.all_reduce_max(2.5) == 2.5
    assert [hardware.any_rank(flag) for flag in (True, False)] == [True, False]
    assert [hardware.first_rank_where(flag) for flag in (True, False)] == [0, None]
    assert hardware.broadcast({"a": [1, None]}) == {"a": [1, None]}
    assert list(hardware.pad_micro_batches(iter("ab"), lambda: None)) == [("a", True), ("b", True)]


def test_a_step_is_that_of_one_process(hardware: Distributed) -> None:
    parameter, idle = nn.Parameter(torch.tensor([3.0, 4.0])), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([parameter, idle], lr=0.1, weight_decay=1.0)
    hardware.backward((parameter**2).sum() / 2)
    assert hardware.step(optimizer, [parameter, idle], 1.0) == pytest.approx(5.0)
    assert idle.tolist() == [1.0], "what has no gradient anywhere is left alone"
    assert parameter.grad is None


def test_gradients_travel_together_by_kind_and_size(
    hardware: Distributed, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = [torch.ones(n) for n in (2, 3, 9, 1)] + [torch.ones(1, dtype=torch.float64)]
    parameters = [nn.Parameter(tensor) for tensor in tensors]
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, float(number))
    sent: list[int] = []

    def record(flat: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sent.append(len(flat))
        return all_reduce(flat, *args, **kwargs)

    all_reduce = dist.all_reduce
    monkeypatch.setattr(dist, "all_reduce", record)
    sum_gradients(parameters, bucket=20)
    assert sent[0] == len(parameters), "which of them have a gradient"
    assert sorted(sent[1:]) == [1, 1, 5, 9]
    assert [p.grad.unique().tolist() for p in parameters] == [[0], [1], [2], [3], [4]]  # type: ignore[union-attr]


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Played: no machine with several was at hand."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    here = ProcessInfo(rank=5, world_size=8, local_rank=1, master_addr="", master_port=0)
    assert _device_of(torch.device("cpu"), here) == torch.device("cpu")
    assert _device_of(torch.device("cuda"), here) == torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(HardwareError, match=r"number 1 on this machine, which has 1 GPUs"):
        _device_of(torch.device("cuda"), here)
    monkeypatch.setenv("SLURM_PROCID", "5")
    assert _device_of(torch.device("cuda"), here) == torch.device("cuda", 0)
    assert chosen == [1, 0]


def test_an_error_of_a_gpu_is_no_lost_process() -> None:
    def fail(error: Exception) -> None:
        with _communicating():
            raise error

    with pytest.raises(PeerLostError, match="no answer"):
        fail(RuntimeError("no answer"))
    for kind in (torch.AcceleratorError, torch.OutOfMemoryError):
        with pytest.raises(kind, match="CUDA error"):
            fail(kind("CUDA error: device-side assert triggered"))


def test_a_launcher_that_started_another_number_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(HardwareError, match=r"hardware\.processes=2, but .* has started 1"):
        Distributed(device="cpu", processes=2)


OPTIONS = {"processes": 2, "strategy": "ddp", "shard_size": None, "offload": False}
OF_RUN = {
    **{"prompts_per_iteration": 6, "group_size": 4, "branches": 1, "branch_at": "window"},
    **{"model": {}, "optimizer": {}},
}


@pytest.mark.parametrize(
    ("tile", "options", "run", "fix"),
    [
        (4, {}, {}, None),
        (5, {}, {}, "hardware.tile=4"),
        (5, {"processes": 1}, {}, None),
        (4, {"strategy": "fsdp2"}, {}, None),
        (4, {}, {"branches": 2}, None),
        (3, {}, {"branches": 2}, "hardware.processes=1"),
        (4, {}, {"branches": 2, "branch_at": "step"}, "hardware.processes=1"),
        (None, {"strategy": "fsdp2"}, {"branches": 2}, None),
    ],
)
def test_a_tile_fits_the_samples_of_a_process(
    tile: int | None, options: dict[str, Any], run: dict[str, Any], fix: str | None
) -> None:
    given = {**OPTIONS, "defer_reduce": False, "tile": tile, **options}
    faults = [*Distributed.validate(given, OF_RUN | run)]
    assert [fault[2] for fault in faults] == ([] if fix is None else [fix])


def test_passes_are_divided_in_blocks(hardware: Distributed) -> None:
    starts = range(0, 23, 5)
    assert hardware.own_passes(starts) == starts
    hardware.tile, hardware.world_size = 5, 3
    own = []
    for hardware.rank in range(3):
        own += hardware.own_passes(starts)
    assert own == [*starts]
    spare = list(hardware.pad_micro_batches(iter(()), lambda: "spare"))
    assert spare == [("spare", False)], "a rank without one takes part in gathers"
