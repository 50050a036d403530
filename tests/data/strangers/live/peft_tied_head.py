"""A PeftModel with adapters of the head, whose weight is the embedding's too."""

import copy

from peft import LoraConfig, get_peft_model

SAYS = "has LoRA adapters of lm_head, which shares its weight with transformer.wte"


def given(model, tokenizer):
    config = LoraConfig(r=4, target_modules=["lm_head", "c_attn"], task_type="CAUSAL_LM")
    return {"model": get_peft_model(copy.deepcopy(model), config)}
