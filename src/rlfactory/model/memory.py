"""Memory savings of an image model: gradient checkpointing, offloading, VAE tiling; compilation."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rlfactory.model.pipelines.local_models import ENCODERS
from rlfactory.utils.errors import ModelError
from rlfactory.utils.sizes import LARGEST_TILE

RECOMPILE_LIMIT = 64
"""How often torch may compile one function for other inputs, before it runs it uncompiled."""


@dataclass(kw_only=True)
class Memory:
    """Options that trade time for memory; apart from rounding none changes the results.

    Args:
        gradient_checkpointing: recompute each block in the backward pass.
        offload_text: keep the text encoders on the CPU while they are idle.
        offload_vae: the same for the autoencoder.
        offload_weights: keep the weight sets beside the policy on the CPU.
        vae_tiling: decode large images in overlapping tiles.
        vae_slicing: decode images one at a time.
        compile: `torch.compile`, block by block.
        attention: the name of one of diffusers' attention backends; None: torch's own.
        merge_adapters: merge LoRA adapters into the weights while samples are drawn whose steps
            are not replayed. "auto": on CUDA, where the network computes in float32; in half
            precision a merged weight would round away most of what an adapter adds to it.
    """

    gradient_checkpointing: bool = False
    offload_text: bool = False
    offload_vae: bool = False
    offload_weights: bool = False
    vae_tiling: bool = False
    vae_slicing: bool = False
    compile: bool = False
    attention: str | None = None
    merge_adapters: Literal["auto"] | bool = "auto"
    # the modules that are on the device for now
    _visitors: list[nn.Module] = field(default_factory=list, init=False)

    def prepare(self, network: Any) -> None:
        """Apply the options to the trained network, after adapters were injected. ModelError where
        it does not know the attention backend, or can't run it.
        """
        if self.gradient_checkpointing:
            network.enable_gradient_checkpointing()
        if self.attention is not None:
            _choose_attention(network, self.attention)
        if self.compile:
            _compile_blocks(network)

    def merges_adapters(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether adapters are merged for rollouts on `device` that are computed in `dtype`."""
        if self.merge_adapters == "auto":
            return device.type == "cuda" and dtype == torch.float32
        return self.merge_adapters

    def prepare_vae(self, vae: Any) -> None:
        """Apply the options to the autoencoder."""
        if self.vae_tiling:
            _enable_tiling(vae)
        if self.vae_slicing:
            vae.enable_slicing()

    def idle_device(self, component: str, device: torch.device) -> torch.device:
        """Where a component of the pipeline stays while it is idle: the CPU or `device`."""
        offloaded = (component.startswith(ENCODERS) and self.offload_text) or (
            component == "vae" and self.offload_vae
        )
        return torch.device("cpu") if offloaded else device

    def encoding(self, pipe: Any, device: torch.device) -> AbstractContextManager[None]:
        """The text encoders are on `device` within the `with`, which may be nested."""
        if not self.offload_text:
            return nullcontext()
        encoders = [
            component
            for name, component in pipe.components.items()
            if name.startswith(ENCODERS) and component is not None
        ]
        return self._onloaded(encoders, device, pin=False)

    def decoding(self, vae: nn.Module, device: torch.device) -> AbstractContextManager[None]:
        """The autoencoder is on `device` within the `with`."""
        return self._onloaded([vae], device, pin=True) if self.offload_vae else nullcontext()

    @contextmanager
    def _onloaded(
        self, modules: list[nn.Module], device: torch.device, *, pin: bool
    ) -> Iterator[None]:
        # the outermost `with` moves them: prompts are encoded one by one within one visit
        outer, self._visitors = self._visitors, self._visitors + modules
        moved = OffloadedModules((m for m in modules if m not in outer), device, pin=pin)
        try:
            moved.load()
            yield
        finally:
            moved.offload()
            self._visitors = outer


class OffloadedModules:
    """Modules that stay on the CPU and come to a device for their work.

    Frozen parameters are copied to the device alone: back on the CPU they are the tensors that they
    were. Whatever else a module holds, such as buffers, is moved both ways. `pin` keeps frozen
    parameters in pinned memory, so that the host does not wait for copies to CUDA: for modules that
    come often, as it takes up to twice their size.
    """

    def __init__(
        self, modules: Iterable[nn.Module], device: torch.device, *, pin: bool = False
    ) -> None:
        self.modules, self.device, self.pin = list(modules), device, pin
        self._is_loaded: bool | None = None  # not known before the first move
        self._kept: list[tuple[nn.Module, str, nn.Parameter, Tensor]] = []

    def load(self) -> None:
        """Move the modules to the device."""
        if self._is_loaded:
            return
        self._is_loaded = True
        pin = self.pin and self.device.type == "cuda"
        for module in self.modules:
            named = [(m, name, p) for m in module.modules() for name, p in m._parameters.items()]
            for owner, name, parameter in named:  # a shared one with each of its owners
                # subclasses, such as quantised weights, have their own way to move
                if type(parameter) is not nn.Parameter or parameter.requires_grad:
                    continue
                # encoders that were just read are on the device already
                if parameter.device.type != "cpu":
                    continue
                if pin and not parameter.is_pinned():
                    parameter.data = parameter.data.pin_memory()
                self._kept.append((owner, name, parameter, parameter.data))
            module.to(self.device, non_blocking=pin)

    def offload(self) -> None:
        """Keep the modules on the CPU alone, which frees the memory of the device."""
        if self._is_loaded is False:
            return
        self._is_loaded = False
        for owner, name, parameter, on_cpu in self._kept:
            parameter.data = on_cpu
            owner._parameters[name] = parameter  # `to` may have put another into its place
        self._kept.clear()
        for module in self.modules:
            module.to("cpu")


def _enable_tiling(vae: Any) -> None:
    """diffusers' tiling, whose tiles have the size of the images that the autoencoder learned on,
    in tiles of at most `LARGEST_TILE`: 1024 x 1024 pixels at once take 3 GiB.
    """
    vae.enable_tiling()
    if not hasattr(vae, "tile_sample_min_size"):
        return  # Qwen-Image's, in tiles of 256 pixels
    edge = min(vae.tile_sample_min_size, LARGEST_TILE)
    vae.tile_sample_min_size = edge
    vae.tile_latent_min_size = edge // 2 ** (len(vae.config.block_out_channels) - 1)


def _compile_blocks(network: Any) -> None:
    """diffusers' `compile_repeated_blocks`, also for networks that list no repeated blocks.

    SD3 lists its blocks only as modules not to be split. Blocks of one class share their compiled
    code. It is compiled for each class, for each way of calling it (sampling, comparing, learning;
    with adapters and without), for the first batch size and once more for all others. That is more
    than torch's own limit, beyond which it silently runs uncompiled.
    """
    limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
    torch._dynamo.config.recompile_limit = limit
    classes = network._repeated_blocks or network._no_split_modules
    for module in network.modules():
        if type(module).__name__ in classes:
            module.compile()


def _choose_attention(network: Any, backend: str) -> None:
    """Set diffusers' attention backend; diffusers silently skips attention that has none."""
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
