"""A classifier."""

from transformers import GPT2ForSequenceClassification

SAYS = "model: is a GPT2ForSequenceClassification, which has no head that writes text"


def given(model, tokenizer):
    return {"model": GPT2ForSequenceClassification(model.config)}
