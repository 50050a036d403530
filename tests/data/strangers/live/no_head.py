"""AutoModel instead of AutoModelForCausalLM."""

from transformers import GPT2Model

SAYS = (
    "model: is a GPT2Model, which has no head that writes text; load it with AutoModelForCausalLM"
)


def given(model, tokenizer):
    return {"model": GPT2Model(model.config)}
