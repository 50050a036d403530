"""CUDA's rules: which operators wait, and which tensors of the CPU may meet tensors of the GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

INDEXING = {
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
}
SHAPED_BY_VALUES = {
    aten.nonzero.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.unique_consecutive.default,
    aten.masked_select.default,
    aten.bincount.default,
    aten.equal.default,
    aten.is_nonzero.default,
}
TAKES_CPU_SCALARS = {
    aten.fill,
    aten.fill_,
    aten.masked_fill,
    aten.masked_fill_,
    aten.where,
    aten.lerp,
    aten.lerp_,
    aten._foreach_mul,
    aten._foreach_mul_,
    aten.lift_fresh,
}
"""Besides the pointwise operators: a CPU tensor without dimensions is passed as a number."""
UNSUPPORTED = {
    aten.resize_.default,
    aten.set_.source_Storage,
    aten.unsqueeze_.default,
    aten.squeeze_.default,
    aten.t_.default,
    aten.transpose_.default,
}
"""Operators that change a tensor's shape in place, which a disguise can't follow."""


class DeviceMismatchError(RuntimeError):
    """Tensors of two devices meet where CUDA would not let them."""


def waits_for_size(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the shape of an operator's result depends on values on the device."""
    if func in SHAPED_BY_VALUES:
        return True
    if func is aten.repeat_interleave.Tensor:
        return kwargs.get("output_size") is None
    if func in INDEXING and any(_is_mask(index) for index in args[1]):
        # `x[mask] = number` is a masked fill, which has no shape to wait for
        return not (len(args) > 2 and args[2].numel() == 1 and not any(args[3:4]))
    return False


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def require_same_device(
    func: Any, args: Sequence[Any], ours: Sequence[Tensor], plain: Sequence[Tensor]
) -> bool:
    """Check tensors that meet in one operator.

    Returns:
        Whether CPU indices must be copied to the device first, for which the host waits.

    Raises:
        DeviceMismatchError: as CUDA would.
    """
    if not ours or not plain:
        return False
    if func in INDEXING:
        values = [v for v in args[2:3] if isinstance(v, Tensor) and v.dim()]
        of_cuda = {id(tensor) for tensor in ours}
        allowed = all(id(t) in of_cuda for t in [args[0], *values])
        is_copied = any(t is not None and id(t) not in of_cuda for t in args[1])
    else:
        takes_numbers = torch.Tag.pointwise in func.tags or (
            func.overloadpacket in TAKES_CPU_SCALARS
        )
        allowed, is_copied = takes_numbers and all(not t.dim() for t in plain), False
    if allowed:
        return is_copied
    shapes = [[tuple(t.shape) for t in tensors] for tensors in (ours, plain)]
    raise DeviceMismatchError(
        "Expected all tensors to be on the same device, but found at least two, cuda and cpu:"
        f" {func} of {shapes[0]} on cuda with {shapes[1]} on cpu"
    )
