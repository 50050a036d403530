"""Torch's settings in deterministic mode; that a GPU then computes equal bits: tests/gpu."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.backends import cuda, cudnn
from torch.utils import deterministic

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.determinism import WORKSPACE
from rlfactory.hardware.distributed import Distributed
from rlfactory.hardware.local import Local


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
