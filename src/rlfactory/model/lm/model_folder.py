"""What the files of a language model's folder say of it: whether it can be loaded, and why not.

Torch-free, for checks of a configuration."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlfactory.model.pipelines.local_models import MODEL_INDEX, read_json, weights_fault

GGUF = ".gguf"
TOKENIZERS = ("tokenizer*.json", "*.model", "vocab.*", "tekken.json", "tokenizer_config.json")
CAUSAL = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration", "Model")
"""Endings of classes that `AutoModelForCausalLM` loads; of a base model where heads are tied."""

Fault = tuple[str, tuple[str, ...] | None]
"""What is wrong, and the words that take the place of the model's."""


def gguf_of(path: Path) -> Path | None:
    """The GGUF file that a path is, or that alone holds the weights of a folder."""
    if path.suffix == GGUF:
        return path if path.is_file() else None
    files = sorted(path.glob(f"*{GGUF}"))
    others = [*path.glob("*.safetensors"), *path.glob("*.bin")]
    return files[0] if len(files) == 1 and not others else None


def language_fault(folder: Path) -> Fault | None:
    """Why a path is no causal language model that can be trained; None if the files don't say."""
    if gguf_of(folder) is not None:
        return None
    if not os.path.isdir(folder):
        what = "is a file, and a folder is needed" if folder.exists() else "does not exist"
        return f"{what}; allowed are a folder, a {GGUF} file, zoo:NAME or a hub id OWNER/NAME", None
    if not (folder / MODEL_INDEX).is_file():
        return _no_model(folder)
    fault = architecture_fault(read_json(folder / MODEL_INDEX)) or weights_fault(folder)
    if fault is None and not any(file for name in TOKENIZERS for file in folder.glob(name)):
        fault = "holds no tokenizer; save_pretrained(FOLDER) of the model's writes it there"
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
    kind, spec = str(config.get("model_type")), find_spec("transformers")
    if "auto_map" in config and spec is not None and spec.origin is not None:
        module = kind.replace("-", "_").removesuffix("_text")
        if not (Path(spec.origin).parent / "models" / module).is_dir():
            return f"needs code of its own (auto_map, {kind}); allowed are models of transformers"
    return None


def _no_model(folder: Path) -> Fault:
    """What a folder without `config.json` is."""
    adapter = read_json(folder / "adapter_config.json")
    if adapter or any(folder.glob("*lora_weights.safetensors")):
        base = adapter.get("base_model_name_or_path")
        words = (f"model={base}", f"begin_from={folder}") if base else None
        typed = f"model={base or 'ITS_BASE'} begin_from={folder}"
        return f"holds adapters and no model; {typed} goes on with them", words
    if (folder / "config.yaml").is_file():
        return f"is a run's folder and no model; begin_from={folder} goes on with its weights", None
    several = f"; of its {GGUF} files, name one" if any(folder.glob(f"*{GGUF}")) else ""
    return f"holds no {MODEL_INDEX}, so it is no model{several}", None
