"""Which language models can be trained, and why others can't: those that a Python caller hands
over, and those in a folder, as far as its files say.

Torch-free, for checks of a configuration."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlfactory.model.pipelines.adapter_files import shared_adapter
from rlfactory.model.pipelines.local_models import MODEL_INDEX, read_json, weights_fault


def model_fault(model: Any) -> str | None:
    """Why a model is no language model that can be trained; None if it is one."""
    kind = type(model).__name__
    if isinstance(model, type):
        return f"is the class {model.__name__}; hand over an instance"
    if hasattr(model, "tokenizer") and hasattr(model, "model"):
        return f"is a {kind}; hand over its parts: model=x.model, tokenizer=x.tokenizer"
    if hasattr(model, "pretrained_model"):
        return f"is a {kind}, which wraps a model; hand over its .pretrained_model"
    if not hasattr(model, "get_output_embeddings"):
        is_network = hasattr(model, "parameters") and hasattr(model, "config")
        own = "; of a pipeline's network hand over the pipeline" if is_network else ""
        wanted = "a diffusers pipeline or a causal language model of transformers"
        return f"is a {kind}; what can be trained is {wanted}{own}"
    if getattr(model.config, "is_encoder_decoder", False):
        return f"is a {kind}, which has an encoder; load a decoder with AutoModelForCausalLM"
    if not model.can_generate() or model.get_output_embeddings() is None:
        return f"is a {kind}, which has no head that writes text; load it with AutoModelForCausalLM"
    if getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None):
        return f"is a quantised {kind}; load it without quantization_config"
    if any(parameter.is_meta for parameter in model.parameters()):
        return f"is a {kind} without weights (on meta, or offloaded); load it without device_map"
    is_peft = hasattr(model, "merge_and_unload")
    if is_peft and hasattr(model, "peft_config") and not is_lora(model):
        return "has an adapter that is not LoRA, which can't be merged"
    if is_peft and (shared := shared_adapter(model)):
        name, other = shared
        return (
            f"has LoRA adapters of {name}, which shares its weight with {other}: merged, they would"
            " change both; hand over the model without these, or with the two untied"
        )
    if getattr(model, "_hf_peft_config_loaded", False) or (
        hasattr(model, "peft_config") and not is_peft
    ):
        return f"is a {kind} with adapters that can't be merged; hand over a PeftModel with LoRA"
    return None


def tokenizer_fault(tokenizer: Any) -> str | None:
    """Why an object is no tokenizer of a language model; None if it is one."""
    if hasattr(tokenizer, "eos_token") and hasattr(tokenizer, "decode"):
        return None
    if hasattr(tokenizer, "tokenizer"):
        return f"is a {type(tokenizer).__name__}; hand over its .tokenizer"
    return f"is a {type(tokenizer).__name__}; hand over AutoTokenizer.from_pretrained(...)"


def is_lora(model: Any) -> bool:
    """Whether a model is one of PEFT's whose adapters are LoRA."""
    configs = getattr(model, "peft_config", None) or {}
    kinds = {str(getattr(c.peft_type, "value", c.peft_type)) for c in configs.values()}
    return hasattr(model, "merge_and_unload") and kinds == {"LORA"}


def lora_options(model: Any) -> dict[str, Any]:
    """The options of a PeftModel's adapters, by which new ones are of its shape; of others none."""
    if not is_lora(model):
        return {}
    config = next(iter(model.peft_config.values()))
    targets = config.target_modules
    return {
        "model.finetune": "lora",
        "model.lora_rank": config.r,
        "model.lora_alpha": float(config.lora_alpha),
        "model.lora_targets": targets if isinstance(targets, str) else sorted(targets or []),
    }


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
        if folder.suffix in (".safetensors", ".ckpt"):
            what += " (of an image model from_single_file of its diffusers pipeline makes one)"
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


def _newest_checkpoint(folder: Path) -> Path | None:
    """The `checkpoint-N` of the highest N, as trainers of transformers and TRL write them."""
    found = {p.name.removeprefix("checkpoint-"): p for p in folder.glob("checkpoint-*")}
    return max(((int(n), p) for n, p in found.items() if n.isdecimal()), default=(0, None))[1]


def _no_model(folder: Path) -> Fault:
    """The message on a folder without `config.json`."""
    adapter = read_json(folder / "adapter_config.json")
    if adapter or any(folder.glob("*lora_weights.safetensors")):
        base = adapter.get("base_model_name_or_path")
        words = (f"model={base}", f"begin_from={folder}") if base else None
        typed = f"model={base or 'ITS_BASE'} begin_from={folder}"
        return f"holds adapters and no model; {typed} goes on with them", words
    if (folder / "config.yaml").is_file():
        return f"is a run's folder and no model; begin_from={folder} goes on with its weights", None
    if copy := next((folder / "snapshots").glob("*"), None):
        return f"is a folder of the hub's cache; the model lies in it: {copy}", (f"model={copy}",)
    if (newest := _newest_checkpoint(folder)) is not None:
        is_model = (newest / MODEL_INDEX).is_file()
        instead = (f"model={newest}",) if is_model else _no_model(newest)[1]
        return f"holds checkpoints alone; name one, of which {newest} is the newest", instead
    several = f"; of its {GGUF} files, name one" if any(folder.glob(f"*{GGUF}")) else ""
    return f"holds no {MODEL_INDEX}, so it is no model{several}", None
