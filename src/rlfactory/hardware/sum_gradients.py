"""The sum of gradients over all ranks, in all-reduces of several tensors each."""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET = 25 * 2**20
"""Bytes of one all-reduce."""


def sum_gradients(parameters: Sequence[nn.Parameter], bucket: int = BUCKET) -> None:
    """Replace `parameter.grad` by the sum over all ranks.

    A parameter without a gradient in any rank stays without; one that has none only in this rank,
    as when it has no samples of a minibatch, gets one.
    """
    has_gradient = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
    # ranks must agree on what they send before they send it
    dist.all_reduce(has_gradient, dist.ReduceOp.MAX)
    trained = [p for p, has in zip(parameters, has_gradient.tolist(), strict=True) if has]
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [p.grad for p in trained if p.grad is not None]
    # all buckets are under way before the first is waited for
    pending = [(group, *_start_all_reduce(group)) for group in buckets(gradients, bucket)]
    for group, flat, work in pending:
        work.wait()
        pieces = torch.split(flat, [gradient.numel() for gradient in group])
        for gradient, piece in zip(group, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))


def buckets(tensors: Sequence[Tensor], size: int) -> Iterator[list[Tensor]]:
    """Consecutive tensors of one dtype and device, at most `size` bytes together; a larger tensor
    is a bucket by itself.
    """
    group, held = list[Tensor](), 0
    for tensor in tensors:
        is_other_kind = bool(group) and (group[0].dtype, group[0].device) != (
            tensor.dtype,
            tensor.device,
        )
        if group and (is_other_kind or held + tensor.nbytes > size):
            yield group
            group, held = [], 0
        group.append(tensor)
        held += tensor.nbytes
    if group:
        yield group


def _start_all_reduce(group: list[Tensor]) -> tuple[Tensor, dist.Work]:
    flat = torch.cat([gradient.reshape(-1) for gradient in group])
    work = dist.all_reduce(flat, async_op=True)
    assert work is not None
    return flat, work
