"""T5."""

from transformers import T5Config, T5ForConditionalGeneration

SAYS = "model: is a T5ForConditionalGeneration, which has an encoder"


def given(model, tokenizer):
    config = T5Config(d_model=8, d_ff=8, d_kv=4, num_layers=1, num_heads=1)
    return {"model": T5ForConditionalGeneration(config)}
