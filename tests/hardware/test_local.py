import pytest
import torch
from torch import nn

from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.local import Local


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
    assert torch.equal(hardware.gather(torch.arange(3)), torch.arange(3))
    assert 0.01 < hardware.peak_memory() < 100


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Local(device="auto").device.type == "cpu"
    with pytest.raises(HardwareError, match=r"hardware\.device=cuda"):
        Local(device="cuda")
