import json

import pytest
import torch
from torch import nn

from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.local import OVERFLOWS, Local


def test_a_step_clips_updates_and_clears() -> None:
    parameter = nn.Parameter(torch.tensor([3.0, 4.0]))
    hardware = Local(device="cpu")
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    hardware.backward((parameter**2).sum() / 4)
    hardware.backward((parameter**2).sum() / 4)
    assert hardware.step(optimizer, [parameter], 1.0) == pytest.approx(5.0)
    torch.testing.assert_close(parameter.detach(), torch.tensor([2.4, 3.2]))
    assert parameter.grad is None


def test_one_process_gathers_itself_and_knows_its_memory() -> None:
    hardware = Local(device="cpu")
    assert (hardware.rank, hardware.world_size) == (0, 1)
    assert torch.equal(hardware.all_gather(torch.arange(3)), torch.arange(3))
    assert [hardware.any_rank(flag) for flag in (True, False)] == [True, False]
    assert 0.01 < hardware.peak_memory() < 100


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Local(device="auto").device.type == "cpu"
    with pytest.raises(HardwareError, match=r"hardware\.device=cuda"):
        Local(device="cuda")


def overflowing(hardware: Local) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    """A parameter whose next gradient is infinite."""
    parameter = nn.Parameter(torch.tensor([3.0, 4.0]))
    hardware.backward((parameter * torch.tensor([1.0, torch.inf])).sum())
    return parameter, torch.optim.SGD([parameter], lr=1.0)


def test_scaled_losses_give_the_same_step() -> None:
    steps = []
    for scaling in (False, True):
        parameter = nn.Parameter(torch.tensor([3.0, 4.0]))
        hardware, optimizer = Local(scaling, device="cpu"), torch.optim.SGD([parameter], lr=1.0)
        hardware.backward((parameter**2).sum() / 4)
        assert bool((parameter.grad > 1000).all()) is scaling  # type: ignore[operator]
        hardware.backward((parameter**2).sum() / 4)
        assert hardware.step(optimizer, [parameter], 1.0) == pytest.approx(5.0)
        steps.append(parameter.detach().clone())
    assert torch.equal(*steps)


def test_a_gradient_too_small_for_float16_survives_where_losses_are_scaled() -> None:
    found = []
    for scaling in (False, True):
        parameter = nn.Parameter(torch.tensor(1.0))
        hardware, optimizer = Local(scaling, device="cpu"), torch.optim.SGD([parameter], lr=1.0)
        hardware.backward((parameter.half() * 1e-4).float() * 1e-4)
        found.append(hardware.step(optimizer, [parameter], 1.0))
    assert found == [0.0, pytest.approx(1e-8, rel=0.01)]


def test_an_update_that_overflows_is_left_out_and_the_next_is_scaled_less(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hardware = Local(True, device="cpu")
    parameter, optimizer = overflowing(hardware)
    with caplog.at_level("INFO"):
        assert hardware.step(optimizer, [parameter], 1.0) is None
    assert parameter.tolist() == [3.0, 4.0]
    assert parameter.grad is None
    assert "the loss scale is now 32768" in caplog.text
    hardware.backward((parameter**2).sum() / 2)
    assert parameter.grad is not None
    assert parameter.grad[0].item() == 3 * 2**15
    assert hardware.step(optimizer, [parameter], 1.0) == pytest.approx(5.0)


def test_without_scaling_an_infinite_norm_is_the_callers_business() -> None:
    hardware = Local(device="cpu")
    parameter, optimizer = overflowing(hardware)
    assert hardware.step(optimizer, [parameter], 1.0) == float("inf")
    assert parameter.tolist() == [3.0, 4.0]


def test_overflows_without_end_are_an_error() -> None:
    hardware = Local(True, device="cpu")
    for _ in range(2):  # a sound one in between begins the count anew
        for _ in range(OVERFLOWS - 1):
            parameter, optimizer = overflowing(hardware)
            assert hardware.step(optimizer, [parameter], 1.0) is None
        hardware.backward((parameter**2).sum())
        assert hardware.step(optimizer, [parameter], 1.0) is not None
    for _ in range(OVERFLOWS - 1):
        parameter, optimizer = overflowing(hardware)
        hardware.step(optimizer, [parameter], 1.0)
    parameter, optimizer = overflowing(hardware)
    with pytest.raises(HardwareError, match="in 25 updates in a row.*precision=bf16"):
        hardware.step(optimizer, [parameter], 1.0)


def test_a_later_attempt_scales_losses_as_the_first_did() -> None:
    first, second = (Local(loss_scaling=True, device="cpu") for _ in range(2))
    for _ in range(3):
        parameter, optimizer = overflowing(first)
        first.step(optimizer, [parameter], 1.0)
    state = json.loads(json.dumps(first.state_dict()))
    second.load_state_dict(state)
    parameter = nn.Parameter(torch.tensor([3.0]))
    second.backward(parameter.sum())
    assert parameter.grad is not None
    assert float(parameter.grad) == state["scaler"]["scale"] == 2.0**13
    assert second.state_dict() == state
    assert state["overflows"] == 3


def test_losses_that_are_not_scaled_leave_nothing_to_remember() -> None:
    plain = Local(device="cpu")
    assert plain.state_dict() == {}
    plain.load_state_dict({"scaler": {"scale": 4.0}, "overflows": 1})
    Local(loss_scaling=True, device="cpu").load_state_dict({})


def test_peak_memory_of_a_gpu_is_that_of_each_phase_and_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hardware, counted = Local(device="cpu"), {"allocated": 5.0, "reserved": 7.0}
    assert hardware.take_peak_memory() == {}
    hardware.device = torch.device("cuda")
    for kind in counted:
        name = f"max_memory_{kind}"
        monkeypatch.setattr(torch.cuda, name, lambda _, kind=kind: counted[kind] * 2**30)
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda _: counted.update(allocated=1.0)
    )
    assert hardware.take_peak_memory() == {"allocated": 5.0, "reserved": 7.0}
    assert hardware.take_peak_memory() == {"allocated": 1.0, "reserved": 7.0}
    assert hardware.peak_memory() == 5.0
    counted["allocated"] = 6.0
    assert hardware.peak_memory() == 6.0
