"""The dtypes in which a network is stored and computes, one for sampling and one for learning; and
the device on which it is built.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from itertools import chain
from typing import Any, Literal

import torch
from torch import nn
from torch.backends import cudnn

Name = Literal["float32", "bfloat16", "float16"]


class Precision:
    """Mixed precision by `torch.autocast` around the network alone.

    Schedules, likelihoods and losses are always computed in float32, and trained weights are
    always stored in float32.

    Args:
        weights: the dtype of frozen weights.
        rollout: in which the network computes while it samples, for training or evaluation.
        learning: in which it computes otherwise, in replays and comparisons too.
        tf32: whether float32 products and convolutions are computed in TF32 on CUDA, with 10 bits
            of mantissa. "auto": where the network computes in half precision, so that they are
            those of the autoencoder and of rewards.
    """

    def __init__(
        self,
        *,
        weights: Name = "float32",
        rollout: Name = "float32",
        learning: Name = "float32",
        tf32: Literal["auto"] | bool = "auto",
    ) -> None:
        self.weights: torch.dtype = getattr(torch, weights)
        self.rollout: torch.dtype = getattr(torch, rollout)
        self.learning: torch.dtype = getattr(torch, learning)
        self.tf32 = torch.float32 not in (self.rollout, self.learning) if tf32 == "auto" else tf32
        self._current = self.learning

    @property
    def replays_exactly(self) -> bool:
        """Whether other batches change results by float32 rounding at most."""
        return self.rollout == self.learning == torch.float32

    def set_matmul_precision(self, device: torch.device) -> None:
        """Choose for this process how CUDA multiplies float32 matrices, and convolves."""
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
            cudnn.allow_tf32 = self.tf32  # torch's default, unlike that of matrices, is TF32

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Compute in the dtype `rollout`, and without gradient, within the `with`.

        Explicit, since the absence of gradients does not mean sampling: comparisons while
        learning have none either. The weights must not change meanwhile.
        """
        outer, self._current = self._current, self.rollout
        try:
            with torch.no_grad(), self._kept_casts():
                yield
        finally:
            self._current = outer

    def _kept_casts(self) -> AbstractContextManager[object]:
        """Trained weights are cast once, and not in each pass.

        Autocast keeps its copies of weights until the outermost `autocast` ends, which may be one
        that is disabled. Without gradient only: copies are part of the graph that made them.
        """
        if self._current == torch.float32:
            return nullcontext()
        return torch.autocast("cpu", enabled=False)

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """The context for a forward pass; does nothing in float32."""
        if self._current == torch.float32:
            return nullcontext()
        return torch.autocast(device.type, dtype=self._current)


def in_dtype(network: Any, dtype: torch.dtype) -> Any:
    """The same network, stored as its library loads it in that dtype: some networks keep layers in
    float32, and what no file has, such as the frequencies of positions, loses no digits.
    """
    kept = {*(getattr(network, "_keep_in_fp32_modules_strict", None) or ())}
    # which transformers' networks have, and heed these in float16 alone
    if not hasattr(network, "_keep_in_fp32_modules_strict") or dtype == torch.float16:
        kept |= {*(getattr(network, "_keep_in_fp32_modules", None) or ())}
    in_files = network.state_dict(keep_vars=True)
    for name, tensor in chain(network.named_parameters(), network.named_buffers()):
        if tensor.is_floating_point():
            own = torch.float32 if kept & {*name.split(".")} else dtype
            wider = torch.promote_types(tensor.dtype, dtype)
            tensor.data = tensor.data.to(own if name in in_files else wider)
    return network


@contextmanager
def exact_inputs(module: nn.Module, *exact: object) -> Iterator[None]:
    """A module gets these as its first arguments within the `with`; None: its own.

    Transformers cast times to the dtype in which they compute before they embed them: in bfloat16
    a time of 750 would become 752.
    """

    def restore(_: object, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        given = zip(exact, arguments, strict=False)
        return (*(own if x is None else x for x, own in given), *arguments[len(exact) :])

    hook = module.register_forward_pre_hook(restore)
    try:
        yield
    finally:
        hook.remove()


_NETWORK_DEVICE = ContextVar[torch.device | None]("network_device", default=None)


@contextmanager
def network_on(device: torch.device) -> Iterator[None]:
    """Models made inside the `with` have the network that is trained on this device.

    On `meta` it is built from its configuration and nothing is read: the hardware gives it values.
    """
    token = _NETWORK_DEVICE.set(device)
    try:
        yield
    finally:
        _NETWORK_DEVICE.reset(token)


def network_device(default: torch.device) -> torch.device:
    """The device of `network_on`; without it the default."""
    return _NETWORK_DEVICE.get() or default
