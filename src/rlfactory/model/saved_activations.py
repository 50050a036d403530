"""Tensors that autograd keeps of a network with adapters in half precision by autocast.

Autocast computes norms in float32 and matrix products in half precision, and autograd keeps the
copies that it makes in between: a float32 one of each norm's input, and a half-precision one of a
projection's input for each adapter that reads it. Here each is kept once, in half precision.
Predictions are the same bits. Gradients of norms are too; those of adapters that share an input are
summed in half precision, as in a network whose activations are all of that dtype.
"""

from types import MethodType
from typing import Any

import torch
from diffusers.models.normalization import RMSNorm
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

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
    return _Recomputed.apply(norm, x)  # type: ignore[no-untyped-call]


def _compute(norm: nn.Module, x: Tensor) -> Tensor:
    return type(norm).forward(norm, x)


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
