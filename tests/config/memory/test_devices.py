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
    process_notes,
)
from rlfactory.config.memory.model_parts import parts_of
from rlfactory.config.memory.peak_memory import (
    Bytes,
    describe_memory,
    estimate,
    shards_of,
    traits_of,
)
from rlfactory.config.overrides import compose
from rlfactory.hardware.process_environment import GPU
from rlfactory.utils.types import GPUName


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "visible_gpus", lambda: [])


def test_every_gpu_that_can_be_named_is_in_the_table() -> None:
    assert {*get_args(GPUName)} == {"auto", *gpu_models()}
    for gpu in gpu_models().values():
        assert gpu.bf16 >= gpu.tf32 >= gpu.fp32 * 0.9
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


FLUX = 11_901_408_320
FULL = ["model=flux", "model.finetune=full", "hardware.device=cuda", "hardware.memory_gb=80"]
EIGHT = ["hardware.processes=8", "prompts_per_iteration=48"]


def of(*words: str) -> Bytes:
    config = compose([*FULL, *words]).values
    found = estimate(config, traits_of(config))
    assert found is not None
    return found


def test_one_process_has_all() -> None:
    assert shards_of(compose(["hardware=fsdp2"]).values) == (1, 1)
    assert of("hardware=fsdp2") == of("hardware=gpu")


def test_a_replicated_network_leaves_the_samples_to_share() -> None:
    one, eight = of("hardware=ddp", EIGHT[1]), of("hardware=ddp", *EIGHT)
    assert {name for name in one if one[name] != eight[name]} == {"learning"}
    assert eight["learning"] < one["learning"]


@pytest.mark.parametrize("algo", ["grpo", "nft"])
def test_learning_has_three_full_blocks_whoever_is_compared(algo: str) -> None:
    """57 blocks of FLUX; the old policy of DiffusionNFT predicts by ordinary passes."""
    words = (f"algo={algo}", "regularizer=none", *EIGHT, "micro_batch=4")
    ddp, sharded = of(*words, "hardware=ddp"), of(*words, "hardware=fsdp2")
    for name in ("weights", "gradient", "Adam's moments", "weight sets"):
        assert sharded[name] == ddp[name] / 8
    assert sharded["text encoders"] == ddp["text encoders"]
    copies, blocks = 2 * FLUX, 4 * FLUX * 3 / 57
    assert sharded["learning"] == pytest.approx(ddp["learning"] - copies + blocks)


def test_a_sharded_network_is_gathered_whole_in_the_dtype_of_the_passes_to_sample() -> None:
    words = ("hardware=fsdp2", *EIGHT, "memory.gradient_checkpointing=true", "micro_batch=1")
    half, exact = (of(*words, f"precision={name}")["sampling"] for name in ("bf16", "fp32"))
    assert 2 * FLUX < half < 2.4 * FLUX
    assert 4 * FLUX < exact < 4.4 * FLUX


def test_keys_of_fsdp2_count() -> None:
    lora = of("hardware=fsdp2", *EIGHT, "model.finetune=lora")
    assert lora["weights"] - lora["Adam's moments"] / 2 == pytest.approx(2 * FLUX / 8)
    values = compose([*FULL, "hardware=fsdp2", *EIGHT]).values
    for keys, shards in (
        ({}, (1 / 8, 1 / 8)),
        ({"shard_size": 4}, (1 / 4, 1 / 4)),
        ({"offload": True}, (0, 0)),
        ({"defer_reduce": True}, (1 / 8, 1)),
        ({"tile": 4}, (1 / 8, 1)),
    ):
        assert shards_of({**values, "hardware": values["hardware"] | keys}) == shards


def test_blocks_are_those_of_the_network() -> None:
    for path, name, count in (
        ("black-forest-labs/FLUX.1-dev", "transformer", 19 + 38),
        ("stabilityai/stable-diffusion-3.5-medium", "transformer", 24),
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", "unet", 8),
    ):
        parts = parts_of(path)
        assert parts is not None
        assert parts[name].blocks == count


def test_the_plan_says_that_each_process_takes_it() -> None:
    config = compose([*FULL, "hardware=ddp", *EIGHT]).values
    assert describe_memory(config, of("hardware=ddp", *EIGHT)).startswith("in each process about ")
    assert describe_memory(config | {"hardware": {"processes": 1}}, of()).startswith("about ")


@pytest.mark.parametrize(("threads", "said"), [(None, "1 thread"), (4, "4 threads")])
def test_portable_kernels_say_what_they_cost(threads: int | None, said: str) -> None:
    node = {"device": "cpu", "portable": True, "threads": threads}
    (note,) = process_notes({"hardware": node})
    assert note.startswith(f"portable: {said},")
