"""GPUs that can be named or are found, and the memory that they have."""

from typing import get_args

import pytest

from rlfactory.config.memory import devices
from rlfactory.config.memory.devices import (
    ShardedShares,
    available_memory,
    gpu_by_driver_name,
    gpu_models,
    gpu_of,
    on_gpu,
    shares_of,
)
from rlfactory.config.memory.estimate import Estimate, describe_memory, estimate, traits_of
from rlfactory.config.memory.model_parts import parts_of
from rlfactory.config.overrides import compose
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


FLUX = 11_901_408_320
FULL = ["model=flux", "model.finetune=full", "hardware.device=cuda", "hardware.memory_gb=80"]
EIGHT = ["hardware.processes=8", "prompts_per_iteration=48"]


def of(*words: str) -> Estimate:
    config = compose([*FULL, *words]).values
    found = estimate(config, traits_of(config))
    assert found is not None
    return found


@pytest.mark.slow
def test_one_process_has_all() -> None:
    config = compose(["hardware=fsdp2"]).values
    assert shares_of(config) == ShardedShares()
    assert ShardedShares().unsharded_network(FLUX) == 0
    assert ShardedShares().unsharded_blocks(FLUX, 57) == 0
    assert of("hardware=ddp").resident == of("hardware=gpu").resident


def test_a_replicated_network_leaves_the_samples_to_share() -> None:
    one, eight = of("hardware=ddp", EIGHT[1]), of("hardware=ddp", *EIGHT)
    assert eight.resident == one.resident
    assert samples(one) == pytest.approx(8 * samples(eight))


def samples(found: Estimate) -> float:
    """What waits with the gradient."""
    return found.phases["updating"] - 4 * FLUX


def test_a_sharded_network_is_gathered_in_half_precision_to_sample() -> None:
    one, eight = of("hardware=ddp", *EIGHT), of("hardware=fsdp2", *EIGHT)
    for name in ("weights", "Adam's moments", "weight sets"):
        assert eight.resident[name] == one.resident[name] / 8
    assert eight.resident["text encoders"] == one.resident["text encoders"]
    # one process copies the network for autocast, eight gather it in its dtype
    assert eight.phases["sampling"] == pytest.approx(one.phases["sampling"])
    exact = of("hardware=fsdp2", *EIGHT, "precision=fp32")
    assert exact.phases["sampling"] > eight.phases["sampling"] + 2 * FLUX


@pytest.mark.parametrize("algo", ["grpo", "nft"])
def test_learning_has_three_full_blocks_whoever_is_compared(algo: str) -> None:
    """57 blocks of FLUX; the old policy of DiffusionNFT predicts by ordinary passes."""
    words = (f"algo={algo}", "regularizer=none", *EIGHT)
    ddp, sharded = of(*words, "hardware=ddp"), of(*words, "hardware=fsdp2")
    copies, gradient = 2 * FLUX, 4 * FLUX * 7 / 8
    blocks = 4 * FLUX * 3 / 57
    assert sharded.phases["learning"] == pytest.approx(
        ddp.phases["learning"] - copies - gradient + blocks
    )


def test_keys_of_fsdp2_count() -> None:
    plain = of("hardware=fsdp2", *EIGHT)
    lora = of("hardware=fsdp2", *EIGHT, "model.finetune=lora", "memory.offload_weights=false")
    assert lora.resident["weights"] == pytest.approx(2 * FLUX / 8 + 4 * lora.trainable)
    node = {**compose([*FULL, "hardware=fsdp2", *EIGHT]).values["hardware"]}

    def shares(**keys: object) -> ShardedShares:
        config = compose([*FULL, "hardware=fsdp2", *EIGHT]).values
        return shares_of({**config, "hardware": node | keys})

    assert shares(shard_size=4).network == 1 / 4
    assert shares(offload=True).resident == 0
    assert shares(defer_reduce=True).deferred
    config = {**compose([*FULL, "hardware=fsdp2", *EIGHT]).values}
    config["hardware"] = node | {"defer_reduce": True}
    deferred = estimate(config, traits_of(config))
    assert deferred is not None
    more = deferred.phases["updating"] - plain.phases["updating"]
    assert more == pytest.approx(4 * FLUX * 7 / 8)


def test_host_memory_is_that_of_a_shard() -> None:
    one, eight = of("hardware=ddp", *EIGHT), of("hardware=fsdp2", *EIGHT)
    assert eight.host == pytest.approx(one.host / 8)


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
