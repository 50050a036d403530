"""Inputs that no text can hold: models, tokenizers, pipelines and adapters as strangers save them.

Each function takes the path that it writes, and is named by the cases that need it.
"""

import json
from pathlib import Path

import torch
from tiny_language_models import save_language_model
from transformers import AutoModelForCausalLM, AutoTokenizer


def padded_vocabulary(folder: Path) -> None:
    """A model with ten more ids than its tokenizer has tokens, which it finds likeliest."""
    save_language_model(folder, "llama", vocabulary=270)
    network = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        network.get_output_embeddings().weight[260:] *= 30
    network.save_pretrained(folder)


def vocabulary_with_holes(folder: Path) -> None:
    """A model whose special tokens come after five ids that no token has."""
    padded_vocabulary(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for token in tokenizer["added_tokens"]:
        token["id"] += 5
        tokenizer["model"]["vocab"][token["content"]] = token["id"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def no_padding_token(folder: Path) -> None:
    """A model whose tokenizer has no padding token."""
    save_language_model(folder, "llama")


def added_token(folder: Path) -> None:
    """A tokenizer with a token `<new>`, for which the model has no row."""
    save_language_model(folder, "qwen3", vocabulary=259)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<other>", "<new>"])
    tokenizer.save_pretrained(folder)


def padding_without_a_row(folder: Path) -> None:
    """A tokenizer whose padding token was added without a row."""
    save_language_model(folder, "qwen3", vocabulary=259)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(folder)


def no_end(folder: Path) -> None:
    """A tokenizer without an end of text."""
    save_language_model(folder, "llama")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["eos_token"]
    path.write_text(json.dumps(config))


def end_without_a_row(folder: Path) -> None:
    """A model of the bytes alone, whose tokenizer ends texts with a token of its own."""
    save_language_model(folder, "qwen3", vocabulary=256)


def weights_of_nan(folder: Path) -> None:
    """A model with a row of its embedding that is no number, of a token that is rare."""
    save_language_model(folder, "llama")
    network = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        network.get_input_embeddings().weight[200] = torch.nan
    network.save_pretrained(folder)
