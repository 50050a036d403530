"""A PeftModel whose adapters are trained: they are merged, and it is said."""

import copy

import torch
from peft import LoraConfig, get_peft_model

LOGS = "the LoRA adapters of the model that was handed over are merged into its weights"


def given(model, tokenizer):
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["c_proj"], task_type="CAUSAL_LM")
    adapted = get_peft_model(copy.deepcopy(model), config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.01)
    return {"model": adapted}
