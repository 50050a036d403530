"""What the files of a language model's folder say of it: whether it can be loaded, and why not.

Torch-free, for checks of a configuration."""

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlfactory.model.pipelines.local_models import MODEL_INDEX, read_json

GGUF = ".gguf"
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
"""Which shard holds a weight, by the names that transformers looks for."""
TOKENIZERS = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model"),
    *("vocab.json", "vocab.txt", "sentencepiece.bpe.model", "tekken.json"),
)
CAUSAL = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration", "Model")
"""Endings of classes that `AutoModelForCausalLM` loads; of a base model where heads are tied."""
POINTER = b"version https://git-lfs"

Fault = tuple[str, tuple[str, ...] | None]
"""What is wrong, and the words that take the place of the model's."""


def gguf_of(path: Path) -> Path | None:
    """The GGUF file that a path is, or that alone holds the weights of a folder."""
    if path.suffix == GGUF:
        return path if path.is_file() else None
    files = sorted(path.glob(f"*{GGUF}"))
    return files[0] if len(files) == 1 and not _weights(path) else None


def language_fault(folder: Path) -> Fault | None:
    """Why a path is no causal language model that can be trained; None if the files don't say."""
    if folder.suffix == GGUF:
        return None if folder.is_file() else ("does not exist", None)
    if not os.path.isdir(folder):
        what = "is a file, and a folder is needed" if folder.exists() else "does not exist"
        return f"{what}; allowed are a folder, a .gguf file, zoo:NAME or a hub id OWNER/NAME", None
    if gguf_of(folder) is not None:
        return None
    if not (folder / MODEL_INDEX).is_file():
        return _no_model(folder)
    config = read_json(folder / MODEL_INDEX)
    fault = architecture_fault(config) or _weights_fault(folder)
    if fault is None and not any((folder / name).is_file() for name in TOKENIZERS):
        fault = (
            "holds no tokenizer; AutoTokenizer.from_pretrained(ITS_ORIGIN).save_pretrained(FOLDER)"
            " writes it there"
        )
    return (fault, None) if fault else None


def architecture_fault(config: Mapping[str, Any]) -> str | None:
    """Why a `config.json` is none of a causal language model; None if it does not say."""
    names = [str(name) for name in config.get("architectures") or ()]
    if not config:
        return f"has a {MODEL_INDEX} that can't be read"
    if kind := config.get("_class_name"):
        return f"is a part of a pipeline ({kind}); name the pipeline's folder, the one above it"
    if config.get("is_encoder_decoder") or not all(name.endswith(CAUSAL) for name in names):
        known = ", ".join(names) or "an encoder and a decoder"
        return f"is no causal language model ({known}); allowed are those of AutoModelForCausalLM"
    if "auto_map" in config and not _is_of_transformers(str(config.get("model_type"))):
        return (
            f"runs code of its own (auto_map, model_type {config.get('model_type')}), which is not"
            " done here; allowed are architectures of transformers"
        )
    return None


def _is_of_transformers(model_type: str) -> bool:
    spec = find_spec("transformers")
    module = model_type.replace("-", "_").removesuffix("_text")
    origin = spec.origin if spec is not None else None
    return origin is None or (Path(origin).parent / "models" / module).is_dir()


def _no_model(folder: Path) -> Fault:
    """What a folder without `config.json` is."""
    if (adapter := read_json(folder / "adapter_config.json")) or any(
        folder.glob("*lora_weights.safetensors")
    ):
        base = adapter.get("base_model_name_or_path")
        words = (f"model={base}", f"begin_from={folder}") if base else None
        typed = " ".join(words) if words else f"model=ITS_BASE begin_from={folder}"
        return f"holds adapters and no model; {typed} goes on with them", words
    if (folder / "config.yaml").is_file():
        return f"is a run's folder and no model; begin_from={folder} goes on with its weights", None
    if len([*folder.glob(f"*{GGUF}")]) > 1:
        return f"holds several {GGUF} files; name one of them", None
    if part := next((p for p in ("merged", "export") if (folder / p / MODEL_INDEX).is_file()), ""):
        return f"holds no {MODEL_INDEX}, so it is no model; its folder {part} is one", None
    what = ""
    if any((folder / name).is_file() for name in TOKENIZERS):
        what = " (it has a tokenizer)"
    elif _weights(folder):
        what = " (it has weights)"
    return f"holds no {MODEL_INDEX}, so it is no model{what}", None


def _weights(folder: Path) -> list[Path]:
    return [file for ending in ("safetensors", "bin") for file in folder.glob(f"*.{ending}")]


def _weights_fault(folder: Path) -> str | None:
    """What is missing of a folder's weights."""
    for index in (folder / name for name in INDEXES):
        named = read_json(index).get("weight_map")
        shards = {*named.values()} if isinstance(named, dict) else set[str]()
        absent = sorted(name for name in shards if not (folder / str(name)).is_file())
        if absent:
            return f"lacks {', '.join(absent[:3])}, which {index.name} names: fetch the file again"
    files = _weights(folder)
    if not files:
        return "holds no weights: no .safetensors, .bin or single .gguf file"
    return next((f"has {fault}" for file in files if (fault := file_fault(file))), None)


def file_fault(file: Path) -> str | None:
    """Why a file of weights can't be whole; None if it may be."""
    with file.open("rb") as stream:
        begin = stream.read(len(POINTER))
        if begin == POINTER:
            return f"a pointer in place of {file.name}: `git lfs pull` fetches the weights"
        if file.suffix != ".safetensors":
            return None
        stream.seek(0)
        length = int.from_bytes(stream.read(8), "little")
        size = file.stat().st_size
        if length + 8 <= size:
            try:
                header = json.loads(stream.read(length))
                ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
            except (ValueError, KeyError, TypeError, AttributeError):
                return f"{file.name}, which is no safetensors file"
            if max(ends, default=0) + length + 8 <= size:
                return None
    return f"{file.name} cut short ({size:,} bytes): fetch it again"
