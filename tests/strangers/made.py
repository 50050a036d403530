"""Inputs that no text can hold: models, tokenizers, pipelines and adapters as strangers save them.

Each function takes the path that it writes, and is named by the cases that need it.
"""

import json
from pathlib import Path

from tiny_language_models import save_language_model


def qwen_model(path: Path) -> None:
    """A language model whose turns end with `<|im_end|>`, with room for tools."""
    config = save_language_model(path, "qwen3") / "config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps({**values, "max_position_embeddings": 512}))


def llama_model(path: Path) -> None:
    """A language model with a token before texts, whose turns end with `<|eot|>`."""
    save_language_model(path, "llama")


def gemma_model(path: Path) -> None:
    """A language model whose template knows no system message."""
    save_language_model(path, "gemma3")
