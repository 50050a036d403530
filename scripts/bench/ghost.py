"""The memory of networks of any size, counted on fake tensors: nothing is computed or allocated.

Tensors are torch's fake tensors (FakeTensorMode), for which operators only derive shapes: of the
CPU, or of CUDA where torch has a device guard for it (a CUDA build, or tests/device/pretended).
`Live` counts the bytes of all live storages, which is what CUDA's allocator would hold without its
rounding: after a forward pass the activations that autograd has saved, at its maximum the peak.
`Launches` counts kernels.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """Counts bytes of storages created within it: `now`, and their `peak`."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, weakref.ref[Any]] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {storage_of(t)._cdata for t in tree_leaves((args, kwargs)) if _is_tensor(t)}
        for tensor in filter(_is_tensor, tree_leaves(result)):
            storage = storage_of(tensor)
            if storage._cdata not in given and storage._cdata not in self._alive:
                self._count(storage)
        return result

    def _count(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()

        def freed(_: object) -> None:
            self._alive.pop(key, None)
            self.now -= size

        self._alive[key] = weakref.ref(storage, freed)
        self.now += size
        self.peak = max(self.peak, self.now)


NO_KERNEL = {
    *("view", "_unsafe_view", "_reshape_alias", "alias", "as_strided", "detach", "expand"),
    *("permute", "transpose", "t", "squeeze", "unsqueeze", "select", "slice", "unbind", "chunk"),
    *("split", "split_with_sizes", "lift_fresh", "empty", "empty_like", "new_empty", "device"),
    *("sym_size", "size", "is_same_size"),
}
"""Operators that only describe memory."""


class Launches(TorchDispatchMode):
    """Counts operators that launch a kernel (some launch several), by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in NO_KERNEL:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, Tensor)


def storage_of(tensor: Tensor) -> Any:
    return tensor.untyped_storage()


def as_on_cuda(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A norm that autocast computes in float32, as on CUDA; on a CPU autocast would not."""

    def exact(*args: Any, **options: Any) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            args = tuple(_exact(value) for value in args)
            options = {name: _exact(value) for name, value in options.items()}
        return norm(*args, **options)

    return exact


def _exact(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) else value


def with_fake_tensors(module: nn.Module, device: str = "cpu") -> nn.Module:
    """The module with all its tensors replaced by fake ones on a device."""

    def like(tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)

    for inner in module.modules():
        for name, parameter in inner._parameters.items():
            if parameter is not None:
                inner._parameters[name] = nn.Parameter(like(parameter), parameter.requires_grad)
        for name, buffer in inner._buffers.items():
            if buffer is not None:
                inner._buffers[name] = like(buffer)
    return module


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention by the kernel that CUDA would take, which fake tensors don't choose by themselves:
    flash attention in half precision, else the memory-efficient one.
    """
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    if enable_gqa:
        repeats = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(repeats, 1) for tensor in (key, value))
    if query.dtype == torch.float32 or attn_mask is not None:
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        saves = torch.is_grad_enabled()
        return efficient(query, key, value, attn_mask, saves, 0.0, is_causal, scale=scale)[0]
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    return flash(query, key, value, 0.0, is_causal, return_debug_mask=False, scale=scale)[0]


@contextmanager
def fake_tensors(device: str = "cpu") -> Iterator[None]:
    """Every tensor created within the `with` is a fake one; norms and attention are CUDA's."""
    if device == "cuda":
        attention = mock.patch.object(F, "scaled_dot_product_attention", flash_attention)
        with FakeTensorMode(allow_non_fake_inputs=True), attention:
            yield
        return
    norms = {
        name: as_on_cuda(getattr(F, name)) for name in ("layer_norm", "group_norm", "rms_norm")
    }
    with FakeTensorMode(allow_non_fake_inputs=True), mock.patch.multiple(F, **norms):
        yield


@dataclass(frozen=True)
class Measured:
    """Bytes: `saved` by a forward pass for backward, and the peaks of sampling and learning."""

    saved: int
    sampling: int
    learning: int


def measured(predict: Callable[[], Tensor]) -> Measured:
    """The memory of a prediction and of the gradient of its mean square, without weights."""
    with Live() as live:
        with torch.no_grad():
            predict()
        sampling, live.peak = live.peak, live.now
        before = live.now
        loss = predict().float().pow(2).mean()
        saved = live.now - before
        loss.backward()
    return Measured(saved, sampling, live.peak - before)
