"""LoRA adapters in a file or a folder, as diffusers and PEFT save them.

Torch-free, for checks of a configuration."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from rlfactory.model.pipelines.local_models import read_json
from rlfactory.model.pipelines.safetensors_header import read_header

FILES = ("adapter_model.safetensors", "pytorch_lora_weights.safetensors")
"""PEFT's and diffusers' names for them."""
PREFIXES = ("base_model.model.", "transformer.", "unet.")


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
    """

    path: Path
    keys: dict[str, str]
    rank: int
    alpha: float


def find_adapters(path: Path) -> Path | None:
    """The file of adapters that `path` is or that lies in the folder `path`; None without one."""
    if path.is_file():
        return path if path.suffix == ".safetensors" else None
    return next((path / name for name in FILES if (path / name).is_file()), None)


def read_adapters(path: Path) -> AdapterFile:
    """What a file of adapters holds, from its header.

    Raises:
        AdapterFileError: it has other tensors than adapters by PEFT's names, or several ranks.
    """
    try:
        header = read_header(path)
    except (OSError, ValueError, struct.error) as error:
        raise AdapterFileError(f"{path} is no safetensors file") from error
    metadata = header.pop("__metadata__", {})
    foreign = [key for key in header if not key.endswith((".lora_A.weight", ".lora_B.weight"))]
    if foreign or not header:
        raise AdapterFileError(
            f"{path} does not have PEFT's names alone ({min(foreign, default='it is empty')});"
            " pipe.load_lora_weights(FILE) and pipe.save_lora_weights of diffusers convert it"
        )
    ranks = {header[key]["shape"][0] for key in header if key.endswith(".lora_A.weight")}
    if len(ranks) != 1:
        raise AdapterFileError(f"{path} has adapters of several ranks: {sorted(ranks)}")
    (rank,) = ranks
    alpha = read_json(path.with_name("adapter_config.json")).get("lora_alpha")
    if path.name != FILES[0] or alpha is None:
        alpha = _alpha_of(metadata)
    keys = {_in_network(key): key for key in header}
    return AdapterFile(path, keys, rank, float(rank if alpha is None else alpha))


def _alpha_of(metadata: dict[str, str]) -> float | None:
    """That of diffusers' metadata; without any a loader takes the rank."""
    saved = json.loads(metadata.get("lora_adapter_metadata", "{}"))
    return next((value for key, value in saved.items() if key.endswith(".lora_alpha")), None)


def _in_network(key: str) -> str:
    for prefix in PREFIXES:
        # PEFT's prefix stands before the names of a language model, which may begin like others
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key
