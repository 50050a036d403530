"""Inputs that the published steps were run with."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from rlfactory.dynamics.schedule import uniform_sigmas


@dataclass(frozen=True)
class Golden:
    """Provenance: diffusion.md appendix A; ten uniform steps of shift 3. `v` serves as the
    prediction of noise too.
    """

    x: Tensor
    v: Tensor
    next: Tensor
    sigmas: Tensor

    def at(self, i: int) -> tuple[Tensor, Tensor]:
        """The times of step i."""
        return self.sigmas[i].expand(2), self.sigmas[i + 1].expand(2)


@pytest.fixture
def golden() -> Golden:
    """Appendix A's tensors."""
    return Golden(
        x=torch.tensor([[0.5, -1, 0.25, 2], [1.5, 0.1, -0.3, -0.7]]).view(2, 1, 2, 2),
        v=torch.tensor([[0.2, 0.4, -0.6, 1], [-1, 0.3, 0.5, 0.05]]).view(2, 1, 2, 2),
        next=torch.tensor([[0.45, -1.05, 0.4, 1.8], [1.6, 0.05, -0.4, -0.7]]).view(2, 1, 2, 2),
        sigmas=uniform_sigmas(10, 3.0),
    )
