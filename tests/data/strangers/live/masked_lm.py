"""A masked language model."""

from transformers import BertConfig, BertForMaskedLM

SAYS = "model: is a BertForMaskedLM, which has no head that writes text"


def given(model, tokenizer):
    config = BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    return {"model": BertForMaskedLM(config)}
