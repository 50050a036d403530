"""Language models that a Python caller hands over: which can be trained, and which are refused."""

from typing import Any

PARALLEL = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")


def unwrapped(model: Any) -> Any:
    """The model inside the wrappers of torch.compile and of data parallelism."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in PARALLEL:
            inner = model.module
        if inner is None:
            return model
        model = inner


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
        own = "; of a pipeline's network hand over the pipeline" if _is_network(model) else ""
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


def _is_network(model: Any) -> bool:
    return hasattr(model, "parameters") and hasattr(model, "config")
