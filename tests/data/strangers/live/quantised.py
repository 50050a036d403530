"""A model in 4 bits."""

import copy

SAYS = "model: is a quantised GPT2LMHeadModel; load it without quantization_config"


def given(model, tokenizer):
    other = copy.deepcopy(model)
    other.is_quantized = True
    return {"model": other}
