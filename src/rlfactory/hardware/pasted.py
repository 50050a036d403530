"""A configuration of accelerate's or of DeepSpeed's, as users have one: read, and compared with
what an experiment says by itself; knows neither library.

accelerate's is a YAML file with `distributed_type: DEEPSPEED` and a `deepspeed_config`, which may
name a `deepspeed_config_file`; DeepSpeed's is a JSON object. "auto" is what the experiment says.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

AUTO = "auto"
LAUNCHED = frozenset(
    {
        *("compute_environment", "deepspeed_exclusion_filter", "deepspeed_hostfile"),
        *("deepspeed_inclusion_filter", "deepspeed_multinode_launcher", "enable_cpu_affinity"),
        *("machine_rank", "main_process_ip", "main_process_port", "main_training_function"),
        *("num_machines", "rdzv_backend", "same_network", "tpu_env", "tpu_name", "tpu_zone"),
    }
)
"""What `accelerate launch` reads where it starts the processes; no part of the experiment."""
ONLY: Mapping[str, Any] = {
    "debug": (False,),
    "distributed_type": ("DEEPSPEED",),
    "downcast_bf16": ("no", False),
    "dynamo_backend": ("no", "NO"),
    "tpu_use_cluster": (False,),
    "tpu_use_sudo": (False,),
    "offload_param_device": ("none", None),
    "zero_optimization.offload_param.device": ("none", None),
    "zero3_init_flag": (False,),
    "zero3_save_16bit_model": (True, False),
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": (True, False),
    "zero_optimization.stage3_param_persistence_threshold": (0,),
    "zero_allow_untested_optimizer": (True,),
    "zero_force_ds_cpu_optimizer": (False,),
    "prescale_gradients": (False,),
    "gradient_predivide_factor": (1, 1.0),
}
"""What has to be as it is here, since there is no other way."""
WHY: Mapping[str, str] = {
    "offload_param_device": "parameters stay on the device",
    "zero_optimization.offload_param.device": "parameters stay on the device",
    "zero3_init_flag": "a network is loaded whole by each process before it is divided",
    "zero_optimization.stage3_param_persistence_threshold": "all parameters are divided",
    "prescale_gradients": "gradients are added here, not averaged",
    "gradient_predivide_factor": "gradients are added here, not averaged",
    "optimizer": "the optimiser is a choice of its own (rlfactory list optimizer)",
    "scheduler": "learning rates follow learning_rate",
}
PASSED = frozenset(
    {
        *("communication_data_type", "steps_per_print", "wall_clock_breakdown"),
        *(
            f"zero_optimization.{key}"
            for key in (
                *("allgather_bucket_size", "allgather_partitions", "contiguous_gradients"),
                *("overlap_comm", "reduce_bucket_size", "reduce_scatter", "round_robin_gradients"),
                *("stage3_max_live_parameters", "stage3_max_reuse_distance"),
                *("stage3_prefetch_bucket_size", "sub_group_size"),
                *("offload_optimizer.pin_memory", "offload_optimizer.buffer_count"),
            )
        ),
    }
)
"""What DeepSpeed is told as it stands."""
SECTIONS = frozenset(
    {
        *("bf16", "fp16", "deepspeed_config", "zero_optimization"),
        *("zero_optimization.offload_optimizer", "zero_optimization.offload_param"),
    }
)
_SCALING = ("fp16.hysteresis", "fp16.initial", "fp16.loss", "fp16.min", "fp16.auto_cast")
"""Of losses that are scaled: float16 alone has any, and is refused by itself."""
PRECISIONS = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}


class PastedError(ValueError):
    """A file that is none, or says what can't be done; the message names it."""


@dataclass(frozen=True)
class Experiment:
    """What an experiment says by itself: `accumulated` micro-batches of `micro_batch` items each
    process in an update of `batch` items.
    """

    zero: int
    offload: str
    processes: int
    device: str
    learning: str
    max_grad_norm: float
    micro_batch: int
    accumulated: int
    batch: int

    def answers(self) -> dict[str, tuple[str, Any, str]]:
        """By a key of a file: our own key, what it amounts to there, and its value here."""
        zero = ("hardware.zero", self.zero, f"{self.zero}")
        offload = ("hardware.offload", self.offload, self.offload)
        clipping = ("max_grad_norm", self.max_grad_norm, f"{self.max_grad_norm:g}")
        precision = PRECISIONS[self.learning]
        learning = ("precision.learning", precision, self.learning)
        size = ("micro_batch", self.micro_batch, f"{self.micro_batch}")
        on_cpu = self.device == "cpu"
        return {
            "num_processes": ("hardware.processes", self.processes, f"{self.processes}"),
            "zero_stage": zero,
            "zero_optimization.stage": zero,
            "offload_optimizer_device": offload,
            "zero_optimization.offload_optimizer.device": offload,
            "gradient_clipping": clipping,
            "mixed_precision": learning,
            "bf16.enabled": ("precision.learning", precision == "bf16", self.learning),
            "fp16.enabled": ("precision.learning", precision == "fp16", self.learning),
            "gradient_accumulation_steps": (
                "micro_batch",
                self.accumulated,
                f"{self.micro_batch}, which makes {self.accumulated} in each process",
            ),
            "train_micro_batch_size_per_gpu": size,
            "train_batch_size": (
                "updates_per_iteration",
                self.batch,
                f"such that an update has {self.batch} items",
            ),
            "use_cpu": ("hardware.device", on_cpu, self.device),
        }


@dataclass(frozen=True)
class Clash:
    """Where a file and an experiment disagree: our key, and what to say of it."""

    key: str
    message: str


def said(path: str) -> dict[str, Any]:
    """All that a file says, by dotted keys; PastedError where it is no such file."""
    found = dict(_flat(_read(Path(path).expanduser())))
    found = {key.removeprefix("deepspeed_config."): value for key, value in found.items()}
    if inner := found.pop("deepspeed_config_file", None):
        place = Path(inner).expanduser()
        beside = Path(path).expanduser().parent / place
        further = dict(_flat(_read(place if place.exists() else beside)))
        for key in sorted(found.keys() & further.keys()):
            if found[key] != further[key]:
                message = f"says {key}: {found[key]}, and {inner}, which it names,"
                raise PastedError(f"{path} {message} says {further[key]}")
        found |= further
    return found


def clashes(path: str, ours: Experiment) -> Iterator[Clash]:
    """What a file says otherwise than the experiment, and what nobody can do here."""
    answers = ours.answers()
    for key, value in said(path).items():
        if key == "zero_optimization.overlap_comm" and value is True and ours.zero != 2:
            message = f"is {ours.zero}, and {path} says overlap_comm: true, which goes with 2 alone"
            yield Clash("hardware.zero", message)
        elif value == AUTO or key in LAUNCHED or key in PASSED or key.startswith(_SCALING):
            continue
        elif key in answers:
            name, wanted, shown = answers[key]
            if _plain(key, value) != wanted:
                message = f"is {shown}, and {path} says {key}: {_shown(value)}"
                yield Clash(name, f"{message}; write auto there, or what agrees")
        elif key not in ONLY:
            yield Clash("hardware.config", f"{path} says {key}, {_why(key)}; leave it out")
        elif value not in ONLY[key]:
            allowed = " or ".join(dict.fromkeys(_shown(one) for one in ONLY[key]))
            message = f"{path} says {key}: {_shown(value)}, {_why(key)}; allowed is {allowed}"
            yield Clash("hardware.config", message)


def engine(zero: int, offload: str, path: str | None, size: int) -> dict[str, Any]:
    """What DeepSpeed is told for `size` trained numbers: our own keys, and what a file adds."""
    passed = {} if path is None else said(path)
    passed = {k: v for k, v in passed.items() if k in PASSED and v != AUTO}
    # a bucket is memory that is held: no more than there is to send
    told: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": 1.0,
        "steps_per_print": None,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": zero,
            "reduce_bucket_size": max(1, min(size, 500_000_000)),
            "overlap_comm": False,
            "stage3_param_persistence_threshold": 0,
        },
    }
    if offload != "none":
        told["zero_optimization"]["offload_optimizer"] = {"device": offload}
    for key, value in passed.items():
        *above, name = key.split(".")
        if "offload_optimizer" in above and offload == "none":
            continue
        room = told
        for part in above:
            room = room.setdefault(part, {})
        room[name] = value
    return told


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise PastedError(f"{path} can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise PastedError(f"{path} is neither YAML nor, as .json, JSON: {reason}") from error
    if not isinstance(found, Mapping):
        raise PastedError(f"{path} holds no keys and values")
    return found


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Sections that are known are entered; what is empty says nothing."""
    for name, value in node.items():
        key = f"{prefix}{name}"
        if key in SECTIONS and isinstance(value, Mapping):
            below = "" if key == "deepspeed_config" else f"{key}."
            yield from _flat(value, below)
        elif value not in ({}, []):
            yield key, value


def _plain(key: str, value: Any) -> Any:
    """As accelerate has it: null and none are one; and YAML reads a bare no as false."""
    if value is None or (key == "mixed_precision" and value is False):
        return "none" if value is None else "no"
    return value


def _why(key: str) -> str:
    return WHY.get(key, "which means nothing here")


def _shown(value: Any) -> str:
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
