"""Rows in chunks: the same results and gradients, and no chunk's intermediate results are kept."""

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from rlfactory.model.lm.logits import in_chunks

STATES = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
MATRIX = torch.randn(4, 100, generator=torch.Generator().manual_seed(1))
IDS = torch.arange(7)


def results(size: int) -> tuple[Tensor, Tensor, Tensor, int]:
    states, matrix = STATES.clone().requires_grad_(), MATRIX.clone().requires_grad_()
    kept = 0

    def work(states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = (states @ matrix).log_softmax(-1)
        return log_probs.gather(1, ids[:, None])[:, 0], log_probs.amax(1)

    def note(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.shape[-1] == 100 and tensor.shape != matrix.shape
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        chosen, largest = in_chunks(work, size, states, IDS)
    (chosen.sum() + 2 * largest.sum()).backward()  # type: ignore[no-untyped-call]
    assert states.grad is not None
    assert matrix.grad is not None
    return torch.stack([chosen, largest]).detach(), states.grad, matrix.grad, kept


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_chunks_are_the_whole(size: int) -> None:
    whole, parts = results(7), results(size)
    for one, other in zip(whole[:3], parts[:3], strict=True):
        torch.testing.assert_close(one, other)
    assert whole[3] > 0
    assert parts[3] == 0, "a chunk's distribution was kept for the backward pass"
