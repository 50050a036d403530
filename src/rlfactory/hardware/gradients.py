"""Gradients of many processes, summed."""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET = 25 * 2**20
"""Bytes that travel together."""


def sum_gradients(parameters: Sequence[nn.Parameter], bucket: int = BUCKET) -> None:
    """Give every process the sum of all processes' gradients.

    A parameter that has none in any process has none afterwards; one that has none here alone, as
    where a process has no samples of a share, has one then.
    """
    there = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
    dist.all_reduce(there, dist.ReduceOp.MAX)
    trained = [p for p, has in zip(parameters, there.tolist(), strict=True) if has]
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [p.grad for p in trained if p.grad is not None]
    sent = [(group, _sent(group)) for group in buckets(gradients, bucket)]
    for group, (flat, work) in sent:
        work.wait()
        pieces = torch.split(flat, [gradient.numel() for gradient in group])
        for gradient, piece in zip(group, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))


def buckets(tensors: Sequence[Tensor], size: int) -> Iterator[list[Tensor]]:
    """Tensors of one kind and at most `size` bytes together, but for a larger one by itself."""
    group, held = list[Tensor](), 0
    for tensor in tensors:
        is_other = bool(group) and (group[0].dtype, group[0].device) != (
            tensor.dtype,
            tensor.device,
        )
        if group and (is_other or held + tensor.nbytes > size):
            yield group
            group, held = [], 0
        group.append(tensor)
        held += tensor.nbytes
    if group:
        yield group


def _sent(group: list[Tensor]) -> tuple[Tensor, dist.Work]:
    flat = torch.cat([gradient.reshape(-1) for gradient in group])
    work = dist.all_reduce(flat, async_op=True)
    assert work is not None
    return flat, work
