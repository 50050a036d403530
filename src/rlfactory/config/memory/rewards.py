"""Memory of the rewards' networks, from their headers or their published sizes."""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlfactory.config.checks.base import Config, Traits, rewards_of
from rlfactory.config.memory.model_parts import count_parameters, language_model
from rlfactory.config.memory.sharding import BYTES
from rlfactory.config.schema.signature import trait
from rlfactory.model.pipelines.local_models import folder_of

REWARDS_FILE = Path(__file__).with_name("rewards.json")
PATHS = ("path", "clip_path")
"""Options of a reward that name a network."""
READERS = ("gpt2", "llama", "qwen3")
"""Architectures of language models that score, whose activations are estimated."""
ACTIVATIONS = 14
"""Numbers for each token and channel that a block of a vision transformer holds at most."""


@dataclass(frozen=True)
class RewardNetwork:
    """A network that scores.

    Attributes:
        parameters: how many numbers it has.
        element_size: bytes of each.
        layers, width, tokens: of the transformer that reads a sample; 0 where they are not known.
        batch: samples in one forward pass.
    """

    parameters: float
    element_size: int
    layers: int = 0
    width: int = 0
    tokens: int = 0
    batch: int = 1

    @property
    def weights(self) -> float:
        """Bytes of the weights."""
        return self.parameters * self.element_size

    @property
    def activations(self) -> float:
        """The most bytes that a forward pass holds."""
        return float(ACTIVATIONS * self.batch * self.tokens * self.width * self.element_size)


@cache
def published_rewards() -> dict[str, dict[str, int]]:
    """Sizes of published networks: parameters, and the part that reads an image."""
    table: dict[str, dict[str, int]] = json.loads(REWARDS_FILE.read_text(encoding="utf-8"))
    return table


def reward_networks(config: Config, traits: Traits, *, is_gpu: bool) -> list[RewardNetwork]:
    """The networks of all rewards, also of those that only evaluations compute.

    A network whose size is not known before it was downloaded is left out.
    """
    return [
        network
        for _, node, _ in rewards_of(config, traits)
        for network in _networks(node, is_gpu=is_gpu)
    ]


def _networks(node: Mapping[str, Any], *, is_gpu: bool) -> Iterator[RewardNetwork]:
    size = BYTES.get(str(node.get("dtype", "auto")), 2 if is_gpu else 4)
    batch = int(node.get("batch_size") or 1)
    names = [str(node[key]) for key in PATHS if node.get(key)]
    if published := trait(node, "published_size"):
        names = [published]
    for name in names:
        key = f"{name}/image" if trait(node, "image_half", False) else name
        row = published_rewards().get(key) or published_rewards().get(name)
        if row is not None:
            yield RewardNetwork(element_size=size, batch=batch, **row)
        elif (found := language_model(name)) is not None and found.kind in READERS:
            width, tokens = int(found.size / found.blocks), int(node.get("max_tokens") or 512)
            yield RewardNetwork(found.parameters, size, found.blocks, width, tokens, batch)
        elif (parameters := _parameters_of(name)) is not None:
            yield RewardNetwork(parameters, size, batch=batch)
    for inner in node.values():  # a reward inside a reward, such as `rank.Rank`
        if isinstance(inner, Mapping) and "_target_" in inner and "parts" not in node:
            yield from _networks(inner, is_gpu=is_gpu)


def _parameters_of(path: str) -> int | None:
    """Numbers in the safetensors of a folder, by their headers; None if it is not here."""
    folder = folder_of(path)
    try:
        return None if folder is None else count_parameters(folder)
    except (OSError, ValueError, struct.error):
        return None
