"""LoRA adapters in a file or a folder, as diffusers and PEFT save them.

Torch-free, for checks of a configuration."""

import json
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlfactory.model.pipelines.local_models import read_header, read_json
from rlfactory.utils.types import LoraTargets

FILES = ("adapter_model.safetensors", "pytorch_lora_weights.safetensors")
"""PEFT's and diffusers' names for them."""
PREFIXES = ("base_model.model.", "transformer.", "unet.", "diffusion_model.")
UNETS = ("StableDiffusionPipeline", "StableDiffusionXLPipeline")
ALL_LINEAR = "all-linear"
MATRIX = re.compile(r"\.(lora_(?:embedding_)?[AB])(?:\.default)?(\.weight)?$")
"""The end of the name of an adapter's matrix, by PEFT."""
ORIGINAL = re.compile(r"\b(double_blocks|single_blocks|joint_blocks)\.")
"""Modules of networks' original code, which diffusers has under other names."""


class AdapterFileError(ValueError):
    """A file that holds no adapters that can be read; the message says why."""


@dataclass(frozen=True)
class AdapterFile:
    """Adapters on disk.

    Attributes:
        path: the file.
        keys: the name of each tensor in the file, by its name in the network,
            `transformer_blocks.0.attn.to_q.lora_A.weight`.
        rank: of all adapters.
        alpha: of all adapters, which are scaled by alpha / rank.
        shapes: of each tensor, by its name in the network.
    """

    path: Path
    keys: Mapping[str, str]
    rank: int
    alpha: float
    shapes: Mapping[str, Sequence[int]]

    @cached_property
    def modules(self) -> dict[str, tuple[int, int]]:
        """The width of input and output of each adapted module."""
        inputs = {MATRIX.sub("", key): shape[1] for key, shape in self.shapes.items() if _is_a(key)}
        outputs = {MATRIX.sub("", k): shape[0] for k, shape in self.shapes.items() if not _is_a(k)}
        return {name: (width, outputs.get(name, 0)) for name, width in inputs.items()}

    def targets(self, known: Collection[str]) -> list[str]:
        """Targets that adapt the same modules, of `known` ones; whole names where these are not."""
        short = sorted({*map(ending, self.modules)})
        alike = {in_files(name, known) for name in self.modules}
        return short if {n for n in known if is_target(n, short)} == alike else sorted(self.modules)


def ending(name: str) -> str:
    """A module's name without the block that it is in."""
    return re.sub(r"^.*\.\d+\.(?=[a-z])", "", name)


def in_files(name: str, known: Collection[str]) -> str:
    """A module as files have it: those of some networks leave out the network's own name."""
    return name if name in known else name.partition(".")[2]


def is_target(name: str, targets: LoraTargets) -> bool:
    """Whether targets name a module, as PEFT reads them: endings of names, or an expression."""
    if isinstance(targets, str):
        return re.fullmatch(targets, name) is not None
    return any(name == target or name.endswith(f".{target}") for target in targets or ())


def with_all_linear(targets: LoraTargets) -> LoraTargets:
    """Targets with PEFT's word `all-linear` as PEFT takes it: not as an item of a list."""
    words = [targets] if isinstance(targets, str) else targets or []
    return ALL_LINEAR if [word.lower() for word in words] == [ALL_LINEAR] else targets


def count_targets(targets: LoraTargets, linear: int) -> int | None:
    """How many modules of a block are adapted, of as many `linear` layers; None: the default."""
    targets = with_all_linear(targets)
    if isinstance(targets, list) and targets:
        return len({*map(ending, targets)})
    return linear if targets else None


def shared_weight(name: str, other: str) -> str:
    """Why a module that shares its weight is not adapted."""
    return (
        f"{name} shares its weight with {other}: merged into it, an adapter of the one would change"
        " both. model.lora_targets=all-linear adapts all other matrices, and model.finetune=full"
        " trains the shared one too"
    )


def find_adapters(path: Path) -> Path | None:
    """The file of adapters that `path` is or that lies in the folder `path`; None without one."""
    if path.is_file():
        return path if path.suffix == ".safetensors" else None
    return next((path / name for name in FILES if (path / name).is_file()), None)


def read_adapters(path: Path, pipeline: str | None = None) -> AdapterFile:
    """What a file of adapters holds, from its header.

    Raises:
        AdapterFileError: it has other tensors than adapters by PEFT's names, or several ranks or
            alphas; the message converts files of other trainers by `pipeline`.
    """
    try:
        header = read_header(path)
    except (OSError, ValueError, struct.error) as error:
        raise AdapterFileError(f"{path} is no safetensors file") from error
    metadata = header.pop("__metadata__", {})
    options = read_json(path.with_name("adapter_config.json")) if path.name == FILES[0] else {}
    if (kind := options.get("peft_type", "LORA")) != "LORA":
        raise AdapterFileError(f"{path} is of {kind}; adapters that can be trained on are LoRA")
    if foreign := sorted(k for k in header if not MATRIX.search(k) or ORIGINAL.search(k)):
        raise AdapterFileError(f"{path} {_foreign(path, foreign[0], pipeline)}")
    shapes = {_in_network(key): header[key]["shape"] for key in header}
    if not shapes:
        raise AdapterFileError(f"{path} holds no tensors")
    ranks = {shape[0] for key, shape in shapes.items() if _is_a(key)}
    if len(ranks) != 1:
        raise AdapterFileError(f"{path} has adapters of several ranks: {sorted(ranks)}")
    (rank,) = ranks
    options = options or _options_of(metadata)
    if {*(options.get("alpha_pattern") or {}).values()} - {options.get("lora_alpha")}:
        raise AdapterFileError(f"{path} has adapters of several alphas (alpha_pattern)")
    alpha = options.get("lora_alpha") or rank
    if options.get("use_rslora"):  # scaled by alpha / sqrt(rank)
        alpha *= rank**0.5
    return AdapterFile(path, {_in_network(key): key for key in header}, rank, float(alpha), shapes)


def _foreign(path: Path, key: str, pipeline: str | None) -> str:
    """What is wrong with a file that has a tensor that is no matrix of an adapter."""
    if "lora_magnitude" in key:
        return f"holds DoRA's magnitudes ({key}); allowed are plain adapters, without use_dora"
    if "lora" in key or key.endswith(".alpha"):
        return conversion(path, key, pipeline)
    return (
        f"holds weights beside adapters ({key}), as modules_to_save does; merge_and_unload() of"
        " PEFT and save_pretrained(FOLDER) make a model of it: type model.path=FOLDER"
    )


def conversion(path: Path, key: str, pipeline: str | None) -> str:
    """What is to be done with adapters under another program's names."""
    if pipeline is None:
        return f"has no PEFT names ({key}); a PeftModel's save_pretrained writes a file with them"
    part = "unet" if pipeline in UNETS else "transformer"
    return (
        f"has another program's names ({key}); diffusers converts them: pipe ="
        f" {pipeline}.from_pretrained(MODEL); pipe.load_lora_weights({str(path)!r},"
        f" adapter_name='a'); pipe.{part}.save_lora_adapter('converted', adapter_name='a'). Then"
        " type begin_from=converted"
    )


def _options_of(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Those of PEFT in diffusers' metadata; without any a loader takes the rank for alpha."""
    saved = json.loads(metadata.get("lora_adapter_metadata", "{}"))
    return {key.rpartition(".")[2]: value for key, value in saved.items()}


def _in_network(key: str) -> str:
    key = MATRIX.sub(r".\1\2", key)
    for prefix in PREFIXES:
        # PEFT's prefix stands before the names of a language model, which may begin like others
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


def _is_a(key: str) -> bool:
    return MATRIX.search(key)[1].endswith("A")  # type: ignore[index]
