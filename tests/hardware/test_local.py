import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.backends import cuda, cudnn
from torch.utils import deterministic

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.distributed import Distributed
from rlfactory.hardware.local import OVERFLOWS, WORKSPACE, Local


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


def test_a_process_without_samples_steps_with_the_scaled_gradient_of_others() -> None:
    parameter = nn.Parameter(torch.tensor([3.0, 4.0]))
    hardware, optimizer = Local(True, device="cpu"), torch.optim.SGD([parameter], lr=1.0)
    parameter.grad = 2.0**16 * torch.tensor([0.3, 0.4])  # no loss was scaled here
    assert hardware.step(optimizer, [parameter], 1.0) == pytest.approx(0.5)
    torch.testing.assert_close(parameter.detach(), torch.tensor([2.7, 3.6]))


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


def settings() -> dict[str, Any]:
    return {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "only warns": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fills": deterministic.fill_uninitialized_memory,
        "cudnn": (cudnn.deterministic, cudnn.benchmark),
        "attention by cudnn": cuda.cudnn_sdp_enabled(),
        "workspace": os.environ.get(WORKSPACE),
    }


@pytest.fixture(autouse=True)
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(cudnn, "benchmark", True)
    found = settings()
    yield found
    assert settings() == found


ON = {
    "algorithms": True,
    "only warns": False,
    "fills": False,
    "cudnn": (True, False),
    "attention by cudnn": False,
    "workspace": ":4096:8",
}


def test_settings_last_until_the_hardware_is_closed(before: dict[str, Any]) -> None:
    hardware = Local(device="cpu", deterministic=True)
    assert settings() == ON
    hardware.close()
    assert settings() == before


def test_one_of_several_processes_has_them_too(before: dict[str, Any]) -> None:
    hardware = Distributed(device="cpu", deterministic=True)
    assert settings() == ON
    hardware.close()
    assert not dist.is_initialized()
    assert settings() == before


def test_they_are_off_by_default(before: dict[str, Any]) -> None:
    Local(device="cpu")
    assert settings() == before


def test_a_workspace_that_is_not_deterministic_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as inner:
        inner.setenv(WORKSPACE, ":0:0")
        with pytest.raises(HardwareError, match=f"{WORKSPACE} is :0:0"):
            Local(device="cpu", deterministic=True)
    with monkeypatch.context() as inner:
        inner.setenv(WORKSPACE, ":16:8")
        hardware = Local(device="cpu", deterministic=True)
        assert os.environ[WORKSPACE] == ":16:8"
        hardware.close()
        assert os.environ[WORKSPACE] == ":16:8"


def test_attention_of_other_libraries_is_refused() -> None:
    words = ["model=tiny_flux", "hardware.deterministic=true"]
    for backend in ("native", "_native_flash"):
        plan_from_words(*words, f"memory.attention={backend}")
    for backend in ("flash", "_native_cudnn"):
        with pytest.raises(PlanError, match=r"memory\.attention: is .*hardware\.deterministic"):
            plan_from_words(*words, f"memory.attention={backend}")
