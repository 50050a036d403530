"""Full-size pipelines in the published shapes, with random weights or on the meta device.

The shapes are in rlfactory/config/memory/published.json. Weights are initialised on the device, so
nothing is downloaded and the CPU holds none of them. Text encoders, which are frozen and slow to
initialise, are replaced by random embeddings of the right shapes, the same for the same prompt.
"""

import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from rlfactory.config.memory.model_parts import published
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.embedding_cache import PromptCache
from rlfactory.model.pipelines.modular import is_modular, with_components
from rlfactory.model.precision import Precision
from rlfactory.rollout import Condition

SECOND = "transformer_2"


class NoProcessor:
    """What a pipeline asks its processor before it has a prompt."""

    tokenizer = SimpleNamespace(encode=lambda _: [0])

    def apply_chat_template(self, *_: object, **__: object) -> list[list[int]]:
        """The tokens of no message."""
        return [[]]


TOKENS = 512
"""Of a prompt, where a pipeline is not told how many it reads: all that its option allows."""
LEFT_OUT = ("tokenizer", "feature_extractor", "image_encoder", "safety_checker")


def named(path: str) -> Any:
    """The class at an import path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def part(described: Mapping[str, Any], **changes: object) -> nn.Module:
    """A network on the meta device; `changes` replace values of its configuration."""
    kind, config = named(described["class"]), {**described["config"], **changes}
    with torch.device("meta"):
        if described["class"].startswith("diffusers."):
            return kind.from_config(config)
        return kind(kind.config_class(**config))


def materialised(network: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The network with random weights on `device`, small and normal, so that nothing overflows."""
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

    `changes` replace values in the configurations of networks, by name.
    """
    described = published()[name]
    parts = described["parts"]
    network = "unet" if "unet" in parts else "transformer"
    kept = {
        network: materialised(part(parts[network], **changes.get(network, {})), device, dtype),
        **{
            n: materialised(part(parts[n]), device, dtype) for n in ("transformer_2",) if n in parts
        },
        "vae": materialised(part(parts["vae"], **changes.get("vae", {})), device, torch.float32),
        "scheduler": named(described["scheduler"]["class"])(**described["scheduler"]["config"]),
    }
    for module in kept.values():
        if isinstance(module, nn.Module):
            module.requires_grad_(False).eval()
    kind = named(described["pipeline"])
    if is_modular(kind):
        encoder = {"text_encoder": HiddenStates(kept[network]), "tokenizer": CountedTokens()}
        return with_components(kind, {**kept, **encoder})
    options = inspect.signature(kind.__init__).parameters
    empty = {k: None for k, p in options.items() if k != "self" and p.default is p.empty}
    more: dict[str, Any] = {}
    if "requires_safety_checker" in options:
        more["requires_safety_checker"] = False
    if name == "qwen_image_21":  # it asks its processor how long the system message is
        more["processor"] = NoProcessor()
    more |= described.get("options", {})
    pipe = kind(**{**empty, **kept, **more})
    pipe.encode_prompt = MethodType(stand_in(name, network), pipe)
    return pipe


def stand_in(name: str, network: str) -> Callable[..., tuple[Tensor | None, ...]]:
    """An `encode_prompt` that returns random embeddings in the shapes of this pipeline."""

    def encode_prompt(pipe: Any, prompts: Sequence[str], *_: Any, **options: Any) -> Any:
        config, tensor = getattr(pipe, network).config, next(getattr(pipe, network).parameters())

        def drawn(kind: str, *shape: int) -> Tensor:
            rows = [_rows(f"{kind}/{prompt}", shape) for prompt in prompts]
            return torch.stack(rows).to(tensor.device, tensor.dtype)

        if name == "sdxl":
            sequence = drawn("sequence", 77, config.cross_attention_dim)
            return sequence, None, drawn("pooled", 1280), None
        if network == "unet":
            return drawn("sequence", 77, config.cross_attention_dim), None
        length = options.get("max_sequence_length", 256)
        if name == "qwen_image_21":  # it takes no length: that of its measured rows
            return drawn("sequence", length, config.context_in_dim), None, None
        if name == "chroma":
            mask = torch.ones(len(prompts), length, dtype=tensor.dtype, device=tensor.device)
            return drawn("sequence", length, config.joint_attention_dim), None, mask
        if name == "z_image":
            return [*drawn("sequence", length, config.cap_feat_dim)], []
        if name in ("qwen_image", "qwen_image_edit", "flux2_klein", "flux2_dev"):
            return drawn("sequence", length, config.joint_attention_dim), None
        if name == "ernie_image":
            return [*drawn("sequence", TOKENS, config.text_in_dim)]
        mask = torch.ones(len(prompts), length, dtype=torch.long, device=tensor.device)
        if name in ("sana", "ltx"):
            return drawn("sequence", length, config.caption_channels), mask, None, None
        if name == "krea2":
            layers, width = config.num_text_layers, config.text_hidden_dim
            return drawn("sequence", length, layers, width), mask.bool()
        if name == "lumina2":
            # lengths are read from the mask, which holds none on the meta device
            return (drawn("sequence", length, config.cap_feat_dim), torch.ones(mask.shape)) * 2
        if name.startswith("wan"):
            return drawn("sequence", length, config.text_dim), None
        pooled = drawn("pooled", config.pooled_projection_dim)
        if name.startswith("flux"):
            sequence = drawn("sequence", length, config.joint_attention_dim)
            return sequence, pooled, torch.zeros(length, 3)
        return drawn("sequence", 77 + length, config.joint_attention_dim), None, pooled, None

    return encode_prompt


def _rows(key: str, shape: Sequence[int]) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class HiddenStates:
    """A text encoder in the place of FLUX.3's, which reads the hidden states of eight layers."""

    def __init__(self, network: Any) -> None:
        self.network, self.width = network, network.config.joint_attention_dim // 8
        self.dtype, self.device = network.dtype, network.device

    def __call__(self, *, input_ids: Tensor, **_: Any) -> Any:
        shape = (*input_ids.shape, self.width)
        states = [_rows(f"{layer}/{input_ids.shape}", shape) for layer in range(33)]
        states = [rows.to(self.device, self.dtype) for rows in states]
        return SimpleNamespace(hidden_states=states)


class CountedTokens:
    """The tokenizer beside it, and its processor: of as many tokens as are asked for at most."""

    def __init__(self) -> None:
        self.tokenizer = self

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], **_: Any) -> str:
        """The text itself."""
        return messages[0]["content"]

    def __call__(self, text: str, *, max_length: int, **_: Any) -> dict[str, Tensor]:
        ones = torch.ones(1, max_length, dtype=torch.long)
        return {"input_ids": ones, "attention_mask": ones}


class FakeTextEncoders:
    """Replaces a pipeline's `TextEncoders`: `encode` returns the rows of prompts."""

    def __init__(self, encode: Callable[[list[str]], Mapping[str, Tensor]]) -> None:
        self.encode = encode

    def __call__(self, prompts: Sequence[str]) -> Condition:
        return Condition(self.encode([*prompts]))

    def has_new_prompts(self) -> bool:
        """Whether there is something to encode in advance: nothing."""
        return False

    def prepare(self) -> None:
        """Does nothing: there is nothing to encode in advance."""


@contextmanager
def in_place_of_loading(pipe: Any) -> Iterator[None]:
    """Let adapters use `pipe` instead of opening a path."""

    def opened(
        kind: type,
        path: str,
        device: torch.device,
        precision: Precision,
        memory: Memory,
        cache: PromptCache,
        encode: Callable[[list[str]], Mapping[str, Tensor]],
        **options: Any,
    ) -> tuple[Any, FakeTextEncoders]:
        if pipe.vae.device.type != "meta":
            pipe.vae.to(memory.idle_device("vae", pipe.vae.device))
            memory.prepare_vae(pipe.vae)
        return pipe, FakeTextEncoders(encode)

    # adapters of a network on `meta` stay there too, where its passes count
    stay = mock.patch("rlfactory.model.lora._materialise", return_value=None)
    with mock.patch("rlfactory.model.image_base.open_pipeline", opened), stay:
        yield
