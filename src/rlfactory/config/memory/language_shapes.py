"""Shapes of causal language models, from their configurations: parameters, and bytes by token."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rlfactory.config.memory.activations import ComputeOptions
from rlfactory.model.pipelines.local_models import folder_of

PUBLISHED_FILE = Path(__file__).with_name("language_models.json")
Kind = Literal["gpt2", "llama", "qwen3"]
LLAMA_LIKE = {"llama", "mistral", "qwen2", "smollm3", "olmo2"}
ADAPTED = {"gpt2": ("c_attn",), "llama": ("q_proj", "v_proj"), "qwen3": ("q_proj", "v_proj")}
"""PEFT's choice of modules with adapters."""

Rates = tuple[float, float, float, float]
"""Bytes for each number: adapters in float32, in half precision; all weights in both."""
SAVED: Mapping[Kind, Mapping[str, Rates]] = {
    "llama": {
        "hidden": (13.1, 12.7, 25.0, 26.5),
        "query": (16.1, 8.1, 16.1, 8.1),
        "key_value": (0.0, 0.1, 0.0, 0.0),
        "intermediate": (12.0, 6.0, 16.0, 8.0),
    },
    "qwen3": {
        "hidden": (13.1, 12.7, 25.0, 26.5),
        "query": (20.1, 12.2, 24.1, 14.1),
        "key_value": (4.1, 4.1, 8.1, 6.1),
        "intermediate": (12.0, 6.0, 16.0, 8.0),
    },
    "gpt2": {"hidden": (29.1, 18.9, 33.1, 20.6), "intermediate": (16.0, 8.0, 20.0, 10.0)},
}
"""What autograd keeps of a layer for each token, by width: counted on fake tensors."""


@dataclass(frozen=True)
class LanguageShape:
    """Widths of a causal language model; `query` and `key_value` are those of all their heads."""

    kind: Kind
    layers: int
    hidden: int
    query: int
    key_value: int
    intermediate: int
    vocabulary: int
    positions: int
    tied: bool

    @property
    def layer_parameters(self) -> int:
        """Numbers of one layer's matrices; those of norms and biases are left out."""
        attention = 2 * self.hidden * (self.query + self.key_value)
        matrices = 2 if self.kind == "gpt2" else 3
        return attention + matrices * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """All matrices: layers and embeddings."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        learned = self.positions * self.hidden if self.kind == "gpt2" else 0
        return self.layers * self.layer_parameters + embeddings + learned

    def adapters(self, rank: int, targets: int | None) -> int:
        """Numbers of LoRA adapters; of `targets` modules in a layer, as if all were of one size."""
        if self.kind == "gpt2":
            default, count = self.hidden + self.query + 2 * self.key_value, 1
        else:
            default, count = 2 * self.hidden + self.query + self.key_value, 2
        share = 1.0 if targets is None else targets / count
        return int(self.layers * rank * default * share)

    def saved(self, options: ComputeOptions) -> float:
        """Bytes for each token that autograd keeps of one layer."""
        return self.weighted(SAVED[self.kind], options)

    def weighted(self, table: Mapping[str, Rates], options: ComputeOptions) -> float:
        """The sum of a table's bytes for each number of the widths that it names."""
        widths = vars(self)
        return float(
            sum(options.coefficient(*rates) * widths[width] for width, rates in table.items())
        )

    def transient(self, element_size: int) -> float:
        """Bytes for each token that a layer's forward pass holds at most, without a gradient."""
        copies = 5 if self.kind == "gpt2" else 3
        return element_size * (copies * self.intermediate + 4.0 * self.hidden)

    def cached(self, element_size: int) -> float:
        """Bytes of the KV cache for each token of a row."""
        return 2.0 * self.layers * self.key_value * element_size


def language_shape(config: Mapping[str, Any]) -> LanguageShape | None:
    """The shape of a transformers configuration; None if it is of another architecture."""
    kind = config.get("model_type", "")
    if kind == "gpt2":
        hidden = config["n_embd"]
        return LanguageShape(
            kind="gpt2",
            layers=config["n_layer"],
            hidden=hidden,
            query=hidden,
            key_value=hidden,
            intermediate=config.get("n_inner") or 4 * hidden,
            vocabulary=config["vocab_size"],
            positions=config["n_positions"],
            tied=True,
        )
    if kind != "qwen3" and kind not in LLAMA_LIKE:
        return None
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    width = config.get("head_dim") or hidden // heads
    return LanguageShape(
        kind="qwen3" if kind == "qwen3" else "llama",
        layers=config["num_hidden_layers"],
        hidden=hidden,
        query=heads * width,
        key_value=(config.get("num_key_value_heads") or heads) * width,
        intermediate=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        positions=config.get("max_position_embeddings", 2048),
        tied=bool(config.get("tie_word_embeddings", False)),
    )


@cache
def published_language_models() -> dict[str, dict[str, Any]]:
    """Configurations of published models by hub id."""
    table: list[dict[str, Any]] = json.loads(PUBLISHED_FILE.read_text(encoding="utf-8"))
    return {hub: row["config"] for row in table for hub in row["hub"]}


def language_shape_of(path: str | None) -> LanguageShape | None:
    """The shape of `zoo:NAME`, a folder or a published hub id; None if it is not known."""
    if path is None:
        return None
    if path in published_language_models():
        return language_shape(published_language_models()[path])
    folder = folder_of(path)
    try:
        text = (folder / "config.json").read_text(encoding="utf-8") if folder else "{}"
        return language_shape(json.loads(text))
    except (OSError, ValueError, KeyError):
        return None
