"""GPUs that can be named or are found, and the memory that they have."""

from typing import get_args

import pytest

from rlfactory.config.memory import devices
from rlfactory.config.memory.devices import (
    available_memory,
    gpu_by_driver_name,
    gpu_models,
    gpu_of,
    on_gpu,
)
from rlfactory.hardware.environment import GPU
from rlfactory.utils.types import GPUName


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (devices, devices):
        monkeypatch.setattr(module, "visible_gpus", lambda: [])


def test_every_gpu_that_can_be_named_is_in_the_table() -> None:
    assert {*get_args(GPUName)} == {"auto", *gpu_models()}
    for gpu in gpu_models().values():
        assert gpu.half >= gpu.tf32 >= gpu.single * 0.9
        assert gpu.source


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA A100-SXM4-80GB", "a100_80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100_40gb"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA RTX A6000", "a6000"),
        ("Tesla T4", None),
    ],
)
def test_a_gpu_is_found_by_what_the_driver_calls_it(reported: str, name: str | None) -> None:
    found = gpu_by_driver_name(reported)
    assert (found.name if found else None) == name


def test_the_gpu_of_this_machine_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_of({"gpu": "auto"}) is None
    monkeypatch.setattr(devices, "visible_gpus", lambda: [GPU("0", "a", 1, "NVIDIA H200")])
    found = gpu_of({"gpu": "auto", "device": "auto"})
    assert found is not None
    assert found.name == "h200"
    assert gpu_of({"gpu": "auto", "device": "cpu"}) is None


def test_memory_is_that_of_the_named_gpu() -> None:
    named = {"hardware": {"device": "auto", "gpu": "a100_40gb", "memory_gb": None}}
    assert available_memory(named) == (40 * 2**30, "the a100_40gb")
    assert on_gpu(named)
    given = {"hardware": {**named["hardware"], "memory_gb": 20}}
    assert available_memory(given) == (20 * 2**30, "the device")
