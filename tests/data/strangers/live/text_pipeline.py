"""A pipeline of transformers."""

from transformers import pipeline

SAYS = (
    "model: is a TextGenerationPipeline; hand over its parts: model=x.model, tokenizer=x.tokenizer"
)


def given(model, tokenizer):
    return {
        "model": pipeline("text-generation", model=model, tokenizer=tokenizer),
        "tokenizer": None,
    }
