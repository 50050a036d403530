"""Full-size pipelines from the published configurations, with random weights or none at all.

The shapes are in rlfactory/estimate/published.json. On `meta` a pipeline is shapes alone; on a
device its weights are drawn there, so nothing is downloaded and the CPU holds none of it. Text
encoders, which are frozen and many times slower to draw than to skip, are left out: embeddings of
the right shape, random but the same for the same prompt, stand in for what they would say.
"""

import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from rlfactory.estimate.folder import published
from rlfactory.model.memory import Memory
from rlfactory.model.precision import Precision
from rlfactory.model.prompt_cache import PromptCache
from rlfactory.rollout import Condition

LEFT_OUT = ("tokenizer", "feature_extractor", "image_encoder", "safety_checker")


def named(path: str) -> Any:
    """The class at an import path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def part(described: Mapping[str, Any], **changes: object) -> nn.Module:
    """A network of a pipeline on `meta`; `changes` replace values of its configuration."""
    kind, config = named(described["class"]), {**described["config"], **changes}
    with torch.device("meta"):
        if described["class"].startswith("diffusers."):
            return kind.from_config(config)
        return kind(kind.config_class(**config))


def materialised(network: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The network with weights drawn on `device`: small and normal, so that nothing overflows."""
    network = network.to(dtype)
    if device.type == "meta":
        return network
    network.to_empty(device=device)
    with torch.no_grad():
        for name, tensor in (*network.named_parameters(), *network.named_buffers()):
            _draw(name, tensor)
    return network


def _draw(name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        tensor.zero_()
    elif tensor.ndim > 1:
        tensor.normal_(std=min(0.02, tensor[0].numel() ** -0.5))
    else:
        tensor.fill_(1.0 if name.endswith("weight") else 0.0)


def pipeline(
    name: str,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    **changes: Mapping[str, object],
) -> Any:
    """A pipeline without text encoders; the autoencoder in float32, the rest in `dtype`.

    `changes` replace values in the configuration of the part that is named.
    """
    described = published()[name]
    parts = described["parts"]
    network = "unet" if "unet" in parts else "transformer"
    kept = {
        network: materialised(part(parts[network], **changes.get(network, {})), device, dtype),
        "vae": materialised(part(parts["vae"], **changes.get("vae", {})), device, torch.float32),
        "scheduler": named(described["scheduler"]["class"])(**described["scheduler"]["config"]),
    }
    for module in (kept[network], kept["vae"]):
        module.requires_grad_(False).eval()
    kind = named(described["pipeline"])
    empty = {k: None for k in inspect.signature(kind.__init__).parameters if k not in kept}
    more = {"requires_safety_checker": False} if "requires_safety_checker" in empty else {}
    pipe = kind(**{**{k: v for k, v in empty.items() if k != "self"}, **kept, **more})
    pipe.encode_prompt = MethodType(stand_in(name, network), pipe)
    return pipe


def stand_in(name: str, network: str) -> Callable[..., tuple[Tensor | None, ...]]:
    """An `encode_prompt` that returns embeddings of the shapes of this pipeline's."""

    def encode_prompt(pipe: Any, prompts: Sequence[str], *_: Any, **options: Any) -> Any:
        config, tensor = getattr(pipe, network).config, next(getattr(pipe, network).parameters())

        def drawn(kind: str, *shape: int) -> Tensor:
            rows = [_rows(f"{kind}/{prompt}", shape) for prompt in prompts]
            return torch.stack(rows).to(tensor.device, tensor.dtype)

        if network == "unet":
            return drawn("sequence", 77, config.cross_attention_dim), None
        pooled = drawn("pooled", config.pooled_projection_dim)
        length = options.get("max_sequence_length", 256)
        if name.startswith("flux"):
            sequence = drawn("sequence", length, config.joint_attention_dim)
            return sequence, pooled, torch.zeros(length, 3)
        return drawn("sequence", 77 + length, config.joint_attention_dim), None, pooled, None

    return encode_prompt


def _rows(key: str, shape: Sequence[int]) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class StandIns:
    """In the place of a pipeline's text encoders: `encode` gives the rows of prompts."""

    def __init__(self, encode: Callable[[list[str]], Mapping[str, Tensor]]) -> None:
        self.encode = encode

    def __call__(self, prompts: Sequence[str]) -> Condition:
        return Condition(self.encode([*prompts]))

    def prepare(self, batch: int) -> None:
        """There is nothing to encode beforehand."""


@contextmanager
def in_place_of_loading(pipe: Any) -> Iterator[None]:
    """Let our adapters take `pipe`, whatever path they are told to open."""

    def opened(
        kind: type,
        path: str,
        device: torch.device,
        precision: Precision,
        memory: Memory,
        cache: PromptCache,
        encode: Callable[[list[str]], Mapping[str, Tensor]],
        **options: Any,
    ) -> tuple[Any, StandIns]:
        if pipe.vae.device.type != "meta":
            pipe.vae.to(memory.home("vae", pipe.vae.device))
            memory.prepare_vae(pipe.vae)
        return pipe, StandIns(encode)

    with mock.patch("rlfactory.model.pipeline_model.open_pipeline", opened):
        yield
