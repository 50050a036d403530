"""What follows from the weights that a run begins from: how the model is trained, and where."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.frozen import upgrade
from rlfactory.config.memory.model_parts import LLAMA_LIKE, NETWORKS, shapes
from rlfactory.model.pipelines.adapter_files import (
    AdapterFileError,
    find_adapters,
    in_files,
    read_adapters,
)
from rlfactory.model.pipelines.local_models import MODEL_INDEX, folder_of, read_json
from rlfactory.utils.data_files import FileError, read_yaml

LANGUAGE_MODELS = LLAMA_LIKE | {"gpt2", "qwen3"}
"""Types of language models whose modules are named as in their files."""
LORA_KEYS = ("finetune", "lora_rank", "lora_alpha", "lora_targets")


def begun_keys(given: str, path: object) -> dict[str, Any]:
    """The keys of `model`, which lies at `path`, that weights to begin from decide; none where they
    can't be read, which a check says.
    """
    if (former := model_of(Path(given).expanduser())) is not None:
        keys = LORA_KEYS if former.get("finetune") == "lora" else LORA_KEYS[:1]
        return {key: former[key] for key in keys if key in former}
    if (file := find_adapters(Path(given).expanduser())) is None:
        return {}
    try:
        adapters = read_adapters(file)
    except AdapterFileError:
        return {}
    known = matrices(path)
    if known and not known.keys() >= {in_files(name, known) for name in adapters.modules}:
        return {}  # they are of another model
    values = "lora", adapters.rank, adapters.alpha, adapters.targets(known)
    return dict(zip(LORA_KEYS, values, strict=True))


def model_of(run: Path) -> Mapping[str, Any] | None:
    """The `model` node of a run's configuration; None if it is no run folder."""
    try:
        content = read_yaml(run / "config.yaml")
    except (FileError, FileNotFoundError):
        return None
    model = upgrade(content).get("model") if isinstance(content, dict) else None
    return model if isinstance(model, Mapping) else None


def matrices(path: object) -> dict[str, list[int]]:
    """The modules with matrices of a network on this machine, with their shapes; empty where they
    are not known.
    """
    if (folder := folder_of(path)) is None:
        return {}
    network = next((folder / name for name in NETWORKS if (folder / name).is_dir()), folder)
    is_text = network == folder
    if is_text and read_json(folder / MODEL_INDEX).get("model_type") not in LANGUAGE_MODELS:
        return {}
    try:
        found = [item for file in network.glob("*.safetensors") for item in shapes(file).items()]
    except (OSError, ValueError, struct.error):
        return {}
    return {name.rpartition(".")[0]: shape for name, shape in sorted(found) if len(shape) > 1}
