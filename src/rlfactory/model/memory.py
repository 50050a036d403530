"""What is given up for memory: time, by computing twice, by compiling, by moving parts about."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

from rlfactory.model.pipeline import ModelError

COMPILED = 64
"""How often one kind of code may be compiled."""


class Memory:
    """Nothing here changes what a network computes, but for rounding.

    `offload_text`, `offload_vae` and `offload_weights` keep the text encoders, the autoencoder and
    the weight sets beside the policy on the CPU while they are idle; `attention` is a backend of
    diffusers' by name.
    """

    def __init__(
        self,
        *,
        gradient_checkpointing: bool = False,
        offload_text: bool = False,
        offload_vae: bool = False,
        offload_weights: bool = False,
        vae_tiling: bool = False,
        vae_slicing: bool = False,
        compile: bool = False,
        attention: str | None = None,
    ) -> None:
        self.gradient_checkpointing = gradient_checkpointing
        self.offload_text = offload_text
        self.offload_vae = offload_vae
        self.offload_weights = offload_weights
        self.vae_tiling = vae_tiling
        self.vae_slicing = vae_slicing
        self.compile = compile
        self.attention = attention

    def prepare(self, network: Any) -> None:
        """Set the trained network up, its adapters in place."""
        if self.gradient_checkpointing:
            network.enable_gradient_checkpointing()
        if self.attention is not None:
            _choose_attention(network, self.attention)
        if self.compile:
            _compile_blocks(network)

    def prepare_vae(self, vae: Any) -> None:
        """Set the autoencoder up."""
        if self.vae_tiling:
            vae.enable_tiling()
        if self.vae_slicing:
            vae.enable_slicing()

    def home(self, part: str, device: torch.device) -> torch.device:
        """Where a pipeline's part of that name is while it is idle."""
        idle = (part.startswith("text_encoder") and self.offload_text) or (
            part == "vae" and self.offload_vae
        )
        return torch.device("cpu") if idle else device

    def encoding(self, pipe: Any, device: torch.device) -> AbstractContextManager[None]:
        """The text encoders are on `device` within."""
        parts = [part for name, part in pipe.components.items() if name.startswith("text_encoder")]
        return _visiting([p for p in parts if p is not None], device, self.offload_text)

    def decoding(self, vae: nn.Module, device: torch.device) -> AbstractContextManager[None]:
        """The autoencoder is on `device` within."""
        return _visiting([vae], device, self.offload_vae)


@contextmanager
def _visiting(parts: list[nn.Module], device: torch.device, away: bool) -> Iterator[None]:
    """Parts that are kept `away`, on the CPU, come to `device` and go back."""
    moved = parts if away else []
    try:
        for part in moved:
            part.to(device)
        yield
    finally:
        for part in moved:
            part.to("cpu")


def _compile_blocks(network: Any) -> None:
    """What diffusers' `compile_repeated_blocks` does, also where diffusers names no such blocks:
    those of SD3 are the ones that it says are not to be split.

    Blocks share what is compiled. It is made for each kind of block, for each way to call it (to
    draw, to compare, to learn; with adapters and without) and for one batch size, and once more for
    all others: more than torch allows by itself, which goes on uncompiled from there.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, COMPILED)
    kinds = network._repeated_blocks or network._no_split_modules
    for module in network.modules():
        if type(module).__name__ in kinds:
            module.compile()


def _choose_attention(network: Any, backend: str) -> None:
    """By diffusers' own switch, which passes over attention that knows no backends in silence."""
    processors = getattr(network, "attn_processors", {}).values()
    if not any(hasattr(processor, "_attention_backend") for processor in processors):
        raise ModelError(
            f"memory.attention={backend}: the attention of {type(network).__name__} has no backends"
            " to choose from; type memory.attention=null"
        )
    try:
        network.set_attention_backend(backend)
    except (ValueError, RuntimeError, ImportError) as error:
        raise ModelError(f"memory.attention={backend}: {error}") from error
