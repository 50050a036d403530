"""TRL's usual object: a PeftModel, whose LoRA is trained on."""

import copy

from peft import LoraConfig, get_peft_model


def given(model, tokenizer):
    adapted = get_peft_model(
        copy.deepcopy(model), LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM")
    )
    return {"model": adapted}
