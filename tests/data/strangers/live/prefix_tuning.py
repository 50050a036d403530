"""A PeftModel that is not LoRA."""

import copy

from peft import PrefixTuningConfig, get_peft_model

SAYS = "with adapters that can't be merged; hand over a PeftModel with LoRA"


def given(model, tokenizer):
    config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    return {"model": get_peft_model(copy.deepcopy(model), config)}
