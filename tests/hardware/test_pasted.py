"""A pasted configuration of accelerate's or DeepSpeed's against what an experiment says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.hardware.pasted import Experiment, PastedError, clashes, engine, said

OURS = Experiment(
    zero=2,
    offload="none",
    processes=8,
    device="auto",
    learning="bfloat16",
    max_grad_norm=1.0,
    micro_batch=4,
    accumulated=3,
    batch=96,
)
ACCELERATE = """
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_multinode_launcher: standard
  gradient_accumulation_steps: 3
  gradient_clipping: 1.0
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: false
  zero_stage: 2
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""
DEEPSPEED: dict[str, Any] = {
    "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 2,
        "overlap_comm": True,
        "reduce_bucket_size": 1000,
        "stage3_prefetch_bucket_size": "auto",
        "offload_optimizer": {"device": "none", "pin_memory": True},
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}


def written(folder: Path, node: Any, name: str = "pasted.yaml") -> str:
    place = folder / name
    place.write_text(json.dumps(node) if name.endswith(".json") else yaml.safe_dump(node))
    return str(place)


def accelerate(**changes: Any) -> dict[str, Any]:
    node = yaml.safe_load(ACCELERATE)
    inner = {key: changes.pop(key) for key in [*changes] if key.startswith(("zero", "grad", "off"))}
    return {**node, **changes, "deepspeed_config": {**node["deepspeed_config"], **inner}}


def test_what_agrees_is_silent(tmp_path: Path) -> None:
    assert not [*clashes(written(tmp_path, accelerate()), OURS)]
    assert not [*clashes(written(tmp_path, DEEPSPEED, "ds.json"), OURS)]


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"num_processes": 4}, "hardware.processes", "is 8, and {path} says num_processes: 4"),
        ({"zero_stage": 3}, "hardware.zero", "is 2, and {path} says zero_stage: 3"),
        ({"offload_optimizer_device": "cpu"}, "hardware.offload", "is none"),
        ({"gradient_clipping": 0.5}, "max_grad_norm", "is 1, and {path} says gradient_clipping"),
        ({"gradient_accumulation_steps": 1}, "micro_batch", "is 4, which makes 3 in each process"),
        ({"mixed_precision": "no"}, "precision.learning", "is bfloat16"),
        ({"mixed_precision": False}, "precision.learning", "is bfloat16"),
        ({"mixed_precision": "fp16"}, "precision.learning", "says mixed_precision: fp16"),
        ({"use_cpu": True}, "hardware.device", "is auto, and {path} says use_cpu: true"),
        ({"offload_param_device": "cpu"}, "hardware.config", "parameters stay on the device"),
        ({"zero3_init_flag": True}, "hardware.config", "loaded whole by each process"),
        ({"distributed_type": "FSDP"}, "hardware.config", "allowed is DEEPSPEED"),
        ({"fsdp_config": {"a": 1}}, "hardware.config", "says fsdp_config, which means nothing"),
    ],
)
def test_what_disagrees_names_both(
    changes: dict[str, Any], key: str, words: str, tmp_path: Path
) -> None:
    path = written(tmp_path, accelerate(**changes))
    (clash,) = clashes(path, OURS)
    assert clash.key == key
    assert words.format(path=path) in clash.message
    assert path in clash.message


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"train_micro_batch_size_per_gpu": 2}, "micro_batch"),
        ({"train_batch_size": 8}, "updates_per_iteration"),
        ({"bf16": {"enabled": False}}, "precision.learning"),
        ({"fp16": {"enabled": True}}, "precision.learning"),
        ({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}, "hardware.config"),
        ({"prescale_gradients": True}, "hardware.config"),
        ({"zero_optimization": {"stage": 2, "zero_quantized_weights": True}}, "hardware.config"),
        (
            {"zero_optimization": {"stage": 2, "stage3_param_persistence_threshold": 10}},
            "hardware.config",
        ),
    ],
)
def test_so_does_a_file_of_deepspeed(changes: dict[str, Any], key: str, tmp_path: Path) -> None:
    path = written(tmp_path, {**DEEPSPEED, **changes}, "ds.json")
    assert [clash.key for clash in clashes(path, OURS)] == [key]


def test_auto_and_null_are_what_is_here(tmp_path: Path) -> None:
    keys = ("gradient_accumulation_steps", "gradient_clipping")
    node = accelerate(**dict.fromkeys(keys, "auto"), offload_optimizer_device=None)
    assert not [*clashes(written(tmp_path, node), OURS)]
    offloaded = replace(OURS, offload="cpu")
    assert [c.key for c in clashes(written(tmp_path, node), offloaded)] == ["hardware.offload"]


def test_communication_overlaps_with_the_second_stage_alone(tmp_path: Path) -> None:
    node = {"zero_optimization": {"overlap_comm": True}}
    path = written(tmp_path, node, "ds.json")
    (clash,) = clashes(path, replace(OURS, zero=3))
    assert "overlap_comm: true, which goes with 2 alone" in clash.message


def test_a_file_may_name_another(tmp_path: Path) -> None:
    written(tmp_path, {"zero_optimization": {"stage": 3}}, "ds.json")
    node = {
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"deepspeed_config_file": "ds.json"},
    }
    path = written(tmp_path, node)
    assert said(path)["zero_optimization.stage"] == 3
    assert [clash.key for clash in clashes(path, OURS)] == ["hardware.zero"]
    written(tmp_path, {"num_processes": 2, "gradient_clipping": 1.0}, "ds.json")
    node["deepspeed_config"] = {"deepspeed_config_file": "ds.json", "gradient_clipping": 2.0}
    with pytest.raises(PastedError, match=r"says gradient_clipping: 2.0, and ds.json"):
        said(written(tmp_path, node))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("no.yaml", None, "can't be read"),
        ("bad.yaml", "a: [", "neither YAML nor"),
        ("bad.json", "{", "neither YAML nor"),
        ("list.yaml", "- 1", "holds no keys"),
    ],
)
def test_what_is_no_configuration_is_an_error(
    name: str, text: str | None, words: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(PastedError, match=words):
        said(str(tmp_path / name))


def test_deepspeed_is_told_our_keys_and_what_is_passed_on(tmp_path: Path) -> None:
    plain = engine(3, "cpu", None, size=100)
    assert plain["zero_optimization"]["stage"] == 3
    assert plain["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    assert plain["zero_optimization"]["reduce_bucket_size"] == 100
    assert plain["managed_gradient_accumulation"] is False
    path = written(tmp_path, DEEPSPEED | {"wall_clock_breakdown": True}, "ds.json")
    told = engine(2, "none", path, size=100)
    assert told["wall_clock_breakdown"] is True
    assert told["zero_optimization"]["reduce_bucket_size"] == 1000
    assert told["zero_optimization"]["overlap_comm"] is True
    assert "stage3_prefetch_bucket_size" not in told["zero_optimization"]
    assert "offload_optimizer" not in told["zero_optimization"], "there is none"
    assert engine(2, "cpu", path, 1)["zero_optimization"]["offload_optimizer"]["pin_memory"]
