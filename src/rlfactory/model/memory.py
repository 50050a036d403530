"""Memory savings of an image model: gradient checkpointing, offloading, VAE tiling, one
half-precision copy of what adapters read; compilation.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Literal

import torch
from diffusers.models.normalization import RMSNorm
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rlfactory.utils.errors import ModelError

LARGEST_TILE = 512
"""Pixels of a tile's edge; of autoencoders trained on smaller images, it is those images' edge."""
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
        """Apply the options to the trained network, after adapters were injected.

        Raises:
            ModelError: the network does not know the attention backend, or can't run it.
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
        offloaded = (component.startswith("text_encoder") and self.offload_text) or (
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
            if name.startswith("text_encoder") and component is not None
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

    Frozen parameters are copied to the device alone: back on the CPU they are the tensors that
    they were. Whatever else a module holds, such as buffers, is moved both ways.

    Args:
        modules: to be moved.
        device: to which they come.
        pin: keep frozen parameters in pinned memory, so that the host does not wait for copies to
            CUDA. For modules that come often; it takes up to twice their size.
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
            for owner, name, parameter in _parameters_of(module):
                # subclasses, such as quantised weights, have their own way to move
                if type(parameter) is not nn.Parameter or parameter.requires_grad:
                    continue
                # encoders that were just read are on the device already
                if parameter.device.type != "cpu":
                    continue
                if pin and not parameter.is_pinned():
                    parameter.data = parameter.data.pin_memory()
                self._kept.append((owner, name, parameter, parameter.data))
            if pin:
                module.to(self.device, non_blocking=True)
            else:
                module.to(self.device)

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


def _parameters_of(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Parameters with the module and the name that hold them; a shared one several times."""
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                yield owner, name, parameter


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


NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, RMSNorm)
INPUTS = ("hidden_states", "encoder_hidden_states")
"""The first arguments of diffusers' attention, which its projections read."""


def keep_halves(network: nn.Module) -> None:
    """Let autograd keep one half-precision copy of what norms and adapters read.

    For a frozen network with adapters; nothing changes in float32 and in passes without gradient.
    """
    for module in network.modules():
        adapted = sum(isinstance(child, BaseTunerLayer) for child in module.children())
        if hasattr(module, "to_q") and adapted > 1:
            module.register_forward_pre_hook(_cast_inputs, with_kwargs=True)
        elif isinstance(module, NORMS):
            # a method, whose module is copied with it
            setattr(module, "forward", MethodType(_forward, module))  # noqa: B010


def _cast_inputs(
    _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs of several projections in autocast's dtype, which each would cast them to."""
    given = {name: _cast(value) if name in INPUTS else value for name, value in kwargs.items()}
    return tuple(_cast(value) for value in args[:2]) + args[2:], given


def _cast(value: Any) -> Any:
    if not isinstance(value, Tensor) or not _in_autocast(value):
        return value
    return value.to(torch.get_autocast_dtype(value.device.type))


def _in_autocast(x: Tensor) -> bool:
    # some devices, such as `meta`, have no autocast
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _forward(norm: nn.Module, x: Tensor) -> Tensor:
    """The norm, which is computed again in the backward pass where its input is cast to float32."""
    keeps = torch.is_grad_enabled() and x.requires_grad and x.dtype != torch.float32
    if not keeps or not _in_autocast(x):
        return _compute(norm, x)
    y: Tensor = _Recomputed.apply(norm, x)  # type: ignore[no-untyped-call]
    return y


def _compute(norm: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = type(norm).forward(norm, x)
    return y


class _Recomputed(torch.autograd.Function):
    """A frozen norm of which autograd keeps the input as it came."""

    @staticmethod
    def forward(ctx: Any, norm: nn.Module, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.norm, ctx.dtype = norm, torch.get_autocast_dtype(x.device.type)
        return _compute(norm, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        # detached: a graph of this norm alone
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad(), torch.autocast(x.device.type, dtype=ctx.dtype):
            y = _compute(ctx.norm, x)
        return None, torch.autograd.grad(y, x, gradient)[0]
