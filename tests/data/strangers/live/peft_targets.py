"""A PeftModel with targets of its own: what is trained has them too."""

import copy

from peft import LoraConfig, get_peft_model

HOLDS = ["lora_rank: 4", "lora_targets:\n  - c_proj"]


def given(model, tokenizer):
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["c_proj"], task_type="CAUSAL_LM")
    return {"model": get_peft_model(copy.deepcopy(model), config)}
